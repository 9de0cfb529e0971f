"""Points of hyperparameters, and the density through them.

In: a surface L(t) to ask, and where to begin. Out: an `Integral`, q(t) with its evidence and what
is known of how good both are; points are added until that is enough, or given up.
"""
