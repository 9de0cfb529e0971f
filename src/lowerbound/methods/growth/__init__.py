"""Mixtures that find their number of components (paper sections 2.5 and 5.3, local optima).

A mixture of K components is a bound for each number up to K: components without rows cost nothing.
Contract: `Growing` proposes births, merges and deletions, and keeps what raises the exact ELBO.
"""
