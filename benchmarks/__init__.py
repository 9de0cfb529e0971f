"""Benchmarks: ratios to peers that are measured in the same run. See README.md here."""
