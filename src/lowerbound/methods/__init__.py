"""Methods are values (paper sections 2.4, 4.3, 5): what to run, with which settings.

Contract: a method has a `plan` for a problem, which the one loop carries out. Each folder is one
kind: `coordinate` ascent, `stochastic` batches, a `gaussian` from draws, a `grid` over scalars, a
Gaussian over a part of the sites (`partial`), `score` functions for discrete sites, `parameters` by
gradients, `chains` of draws; `rewriting` has what goes around any of them. A new method is a line
in `values`.
"""
