"""Finite discrete sites summed out exactly: by rows, rows within rows, or along chains."""
