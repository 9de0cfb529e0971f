"""Item responses, one row an answer: discriminations multiply abilities, and no scale is unknown.

Given the discriminations all else is Gaussian in one predictor, so they are integrated. Taken for
Gaussian in their logarithms beside the abilities, their sds were two thirds of the posterior's.
"""

from __future__ import annotations

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.methods.hierarchy.finding_theta import predictors_of
from lowerbound.model import trace_model

RNG = np.random.default_rng(3)
ITEMS, PERSONS = 8, 150
PERSON, ITEM = np.divmod(np.arange(ITEMS * PERSONS), ITEMS)
ABILITIES = RNG.normal(size=PERSONS)
SLOPES, DIFFICULTIES = RNG.lognormal(0.0, 0.4, ITEMS), RNG.normal(size=ITEMS)
PREDICTOR = SLOPES[ITEM] * ABILITIES[PERSON] - DIFFICULTIES[ITEM]
Y = (RNG.uniform(size=PERSON.size) < 1.0 / (1.0 + np.exp(-PREDICTOR))).astype(int)


def answers(person, item, y):
    a = numpyro.sample("a", dist.LogNormal(0.0, 1.0).expand([ITEMS]))
    b = numpyro.sample("b", dist.Normal(0.0, 3.0).expand([ITEMS]))
    t = numpyro.sample("t", dist.Normal(0.0, 1.0).expand([PERSONS]))
    numpyro.sample("y", dist.Bernoulli(logits=a[item] * t[person] - b[item]), obs=y)


def test_what_multiplies_is_integrated():
    with jax.enable_x64(True):
        found = predictors_of(trace_model(answers, (PERSON, ITEM, Y)))
    assert found.theta == ("a",)
    assert not found.meet


@pytest.mark.judged
@pytest.mark.parametrize("seed", [0, 1])
def test_means_and_intervals_are_to_be_trusted(seed):
    fit = lb.fit(answers, PERSON, ITEM, Y, seed=seed)
    assert fit.method.startswith("Integrated")
    assert fit.verdict.trust == "all"
