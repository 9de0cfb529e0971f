"""Chains of draws (section 2.4's Monte Carlo): where scales are too many to be integrated.

In: a problem whose real sites z are linear predictors given theta. Out: draws of theta by NUTS, and
of z given theta, with what the chains say of themselves.
"""
