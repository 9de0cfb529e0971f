"""Errors of what stands on the library: formulas and the command line."""
