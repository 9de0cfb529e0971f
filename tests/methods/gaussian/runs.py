"""Fits of Gaussians on the unconstrained space, and how far fresh draws would move them."""

import jax

import lowerbound as lb
from lowerbound.ascent.gaussian_step import distance
from lowerbound.bound.draws import normal_draws
from lowerbound.bound.fixed_draws import averaged, points
from lowerbound.methods.gaussian.target import target_for


def fitted(model, *args, kind=lb.Gaussian, seed=0, precision=None, **settings):
    """A fit by a kind of method with some settings."""
    with lb.computing(precision=precision):
        return lb.fit(model, *args, method=kind(**settings), seed=seed, progress=False)


def shift(fit, draws=1024, seed=9):
    """How far fresh draws would move a mean or a scale, in standard deviations, at most."""
    loc, root = (fit.q.parameters[name] for name in ("loc", "scale_tril"))
    with jax.enable_x64(True):
        target = target_for(fit.model())
        fresh = normal_draws(draws, target.size, seed)
        found = averaged(fresh, *target(points(fresh, loc, root)), root)
    return float(distance(found, False))
