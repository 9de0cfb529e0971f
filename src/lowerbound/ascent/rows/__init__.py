"""Ascent with a Gaussian by rows (beyond the paper): every row keeps a q of its own, no encoder.

Contract: a traced program whose parameters are data goes in (`objective`); windows of stochastic
steps of parameters and q together come out (`climb`), an ELBO on fresh draws (`measure`), and the
q of new rows given what rows share (`local`).
"""
