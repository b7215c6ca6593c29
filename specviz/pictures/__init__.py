"""Pictures that are drawn, with the words that describe them: training data of the picture models."""
