"""The inner problem: z at given hyperparameters, and L(t) with its slope.

Contract: a `Surface` gives the best Gaussian of z at t, sparse; exact where terms are parabolas.
"""
