"""Programs read as sums of functions of linear predictors.

A program becomes one list of operations; what is affine in z is followed as sparse matrices, and
where that ends the program is cut.
"""
