"""Hyperparameters integrated as a vector, the rest a sparse Gaussian given each of their values.

Contract: L(t) = log p(theta) + the bound given theta, on the unconstrained space, is smooth and
deterministic; its mode, its curvature and points around it give q(theta, z) and the log evidence.
"""
