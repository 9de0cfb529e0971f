"""Methods are values (paper sections 2.4, 4.3, 5): what to run, with which settings.

Contract: each folder is one method: `coordinate` ascent, `stochastic` batches, a `grid` over
scalars, a `gaussian` from draws, a Gaussian over a part of the sites (`partial`), `score` functions
for discrete sites, `networks` by gradients. `routes` take a method to what runs it.
"""
