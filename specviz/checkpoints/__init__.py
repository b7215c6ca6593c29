"""Files of weights: safetensors, GGUF, MXINT8, split files, config.json; what is wrong with one is a ModelError."""
