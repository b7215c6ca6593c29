"""Evidence: is the output the target's, and how fast is it? Certificates, statistics, benchmarks, baselines."""
