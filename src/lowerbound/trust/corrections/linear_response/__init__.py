"""Covariances from how an optimum of the ELBO moves (section 5, its open problems).

Contract: `responded(fit, view, draws, seed)` gives a density of the continuous sites with the means
of q, and the sds and correlations by linear response (Giordano, Broderick and Jordan 2018).
"""
