"""A Gaussian on the unconstrained space from draws of log p (paper section 5.2).

Contract: a `Target` gives log p and its gradient at batches of points; an algorithm, which is a
`GaussianAscent`, goes on from the best of several starts; the answer is measured on fresh draws.
"""
