"""Which model: comparisons of fits, and fits over the values of one argument (sections 2.2, 4.1).

Contract: `compare` takes fits of the same data and ranks them by a number that is stated with its
error; it marks those whose verdict is not "all". `sweep` makes the fits. Both return frozen
records, and neither has inference of its own: bounds, predictive densities and weights are the
fits'.
"""
