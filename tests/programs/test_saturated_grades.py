"""Grades whose probabilities are differences that vanish in double precision under a wide prior.

Coordinate ascent starts from the prior, under which the expected log density is -inf.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import expit
from scipy import stats
from scipy.special import expit as logistic

import lowerbound as lb
from lowerbound import errors

RNG = np.random.default_rng(1)
CUTS = np.sort(RNG.uniform(0.0, 20.0, (12, 3)), axis=1)
TRUE = np.array([2.0, 5.0, 9.0, 14.0])
SLOPE = 8.0
GRADES = (RNG.uniform(size=(4, 12, 1)) < logistic(SLOPE * (TRUE[:, None, None] - CUTS))).sum(-1)


def graded(cuts, grades):
    with numpyro.plate("children", len(grades)):
        theta = numpyro.sample("theta", dist.Normal(0.0, 36.0))
    above = expit(SLOPE * (theta[:, None, None] - cuts))
    one = jnp.ones((*grades.shape, 1))
    upper, lower = jnp.concatenate([one, above], -1), jnp.concatenate([above, 0.0 * one], -1)
    numpyro.sample("grade", dist.Categorical(probs=upper - lower), obs=grades)


def exact():
    at = np.linspace(-5.0, 25.0, 60_001)
    above = logistic(SLOPE * (at[:, None, None] - CUTS))
    ends = np.ones((*above.shape[:2], 1))
    p = np.concatenate([ends, above], -1) - np.concatenate([above, 0.0 * ends], -1)
    moments = []
    with np.errstate(divide="ignore"):
        for grades in GRADES:
            log_p = stats.norm.logpdf(at, 0.0, 36.0)
            log_p = log_p + np.log(p[:, np.arange(12), grades]).sum(axis=1)
            w = np.exp(log_p - log_p.max())
            mean = (w * at).sum() / w.sum()
            moments.append((mean, np.sqrt((w * (at - mean) ** 2).sum() / w.sum())))
    return np.array(moments).T


def test_the_next_rung_is_taken_and_near_the_posterior():
    with pytest.warns(errors.LadderWarning, match="The ELBO is -inf"):
        fit = lb.fit(graded, CUTS, GRADES)
    mean, sd = exact()
    assert fit.method.startswith("Gaussian")
    # the Gaussian of the largest ELBO, of densities with flat tops
    assert fit.mean("theta") == pytest.approx(mean, abs=0.1 * sd.max())
    assert fit.sd("theta") == pytest.approx(sd, rel=0.15)


def test_coordinate_ascent_that_is_asked_for_says_so():
    with pytest.raises(errors.InfiniteBoundError, match="in sweep 1"):
        lb.fit(graded, CUTS, GRADES, method=lb.CAVI())
