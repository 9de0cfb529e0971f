"""Coordinate ascent (paper section 2.4, alg:cavi), and variational EM around it.

Contract: from starts of several kinds, sweeps until the ELBO settles; it never falls.
"""
