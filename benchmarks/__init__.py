"""Benchmarks against the established engines; run them with ``python -m benchmarks``."""
