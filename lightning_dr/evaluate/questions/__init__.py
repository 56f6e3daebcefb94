"""Benchmarks of policies: questions, and their official answer files, a file each."""
