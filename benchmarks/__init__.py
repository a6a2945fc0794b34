"""Benchmarks: what the library learns, and how fast."""
