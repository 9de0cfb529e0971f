"""A fit in the forms that other libraries read: ArviZ's groups of draws, a guide of NumPyro's.

in: a `Fit`. out: an xarray DataTree or an InferenceData; a program that draws from q.
Nothing here computes what `Fit` could not say itself.
"""
