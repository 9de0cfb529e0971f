"""Factors q_j of an exponential family (paper section 4, sec:ef), one file a kind."""
