"""``lightning-dr evaluate``: evaluators and policies on the benchmarks that people quote."""
