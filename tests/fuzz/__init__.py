"""Decoders fed with bytes that libFuzzer makes up: ``python -m tests.fuzz``, or ``make fuzz``."""
