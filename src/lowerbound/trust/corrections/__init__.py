"""What to do about a fit that is off (section 5, its open problems): better draws, from q.

Contract: each correction takes what it needs of a fit and gives `Corrected`: a density, which may
be draws, of the continuous sites of the program, and what was found on the way. `correct` makes
a `Fit` of it.
"""
