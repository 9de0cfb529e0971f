"""Optima that q is not at: summits of log p, fixed points of sweeps, and images of q's own.

In: what a fit is judged against, and where its other starts have come to. Out: those that would
move means or sds, with about the mass that they have.
"""
