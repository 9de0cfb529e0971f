"""Labelled terms, the lazy einsum in which log p is written, and what acts on them."""
