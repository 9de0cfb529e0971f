"""Loops and running sums, opened: side by side, with levels of their own, or as products.

Contract: a loop becomes a function of its inputs and its levels; levels take the places of the
increments that they are the sums of, and the map back to these is exact.
"""
