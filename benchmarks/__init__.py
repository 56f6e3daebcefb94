"""What is timed, against what, printed as ratios: ``python -m benchmarks``."""
