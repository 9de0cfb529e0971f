"""Variational EM by gradients (beyond the paper): parameters as points, a Gaussian q by rows.

Contract: a traced program whose parameters are data goes in; values of the parameters and q(u) on
the unconstrained space come out, with an ELBO measured on fresh draws and a reason for stopping.
Rows of the data are taken a batch at a time; every row keeps a q of its own, there is no encoder.
"""
