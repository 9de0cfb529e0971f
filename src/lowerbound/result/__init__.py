"""What a fit leaves (paper section 2.2): q, its bound, the plan, and what they say of new data.

Contract: a `Fit` answers for means, sds, draws, predictions and held-out densities, whatever the
method; it is saved and loaded without running code. A `Plan` says what is done to each site.
"""
