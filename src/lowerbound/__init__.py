"""Variational inference for NumPyro models, after Blei, Kucukelbir and McAuliffe (2017)."""

__version__ = "0.1.0"
