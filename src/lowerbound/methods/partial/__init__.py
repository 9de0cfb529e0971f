"""A Gaussian over some sites and exact factors of the others: q(g) q(z) (paper section 5.2)."""
