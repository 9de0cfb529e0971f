"""Structured inference by conditioning: a few scalars on a grid, the rest solved given them.

Contract: q(theta) q(z | theta), theta wherever its posterior is; never below mean field's ELBO.
"""
