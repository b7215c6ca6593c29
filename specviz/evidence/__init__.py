"""Evidence that the output is the target's, and how fast it is: certificates, statistics, benchmarks,
baselines."""
