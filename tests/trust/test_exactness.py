"""A fit that says it is the posterior has been asked: log p - log q is its ELBO at draws of q.

Nothing here can fail by chance: seeds are fixed, and where q follows z between points the middle of
sixteen differences is far within the limit (at most 0.15 of 0.5 nats over twenty seeds).
"""

from dataclasses import replace
from functools import cache

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.family.q import Q
from lowerbound.trust.exactness import holds
from lowerbound.trust.judging import EXACT, judged

pytestmark = pytest.mark.judged
RNG = np.random.default_rng(3)
X = RNG.normal(size=(40, 3))
Y = X @ np.array([1.0, -0.5, 0.2]) + RNG.normal(size=40)
GROUP = np.arange(40) % 8
LEVELS = Y + RNG.normal(size=8)[GROUP]


def conjugate(x, y):
    b = numpyro.sample("b", dist.Normal(0.0, 2.0).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ b, 1.0), obs=y)


def scaled(x, y):
    b = numpyro.sample("b", dist.Normal(0.0, 2.0).expand([3]).to_event(1))
    s = numpyro.sample("s", dist.HalfCauchy(1.0))
    numpyro.sample("y", dist.Normal(x @ b, s), obs=y)


def two_scales(x, y):
    b = numpyro.sample("b", dist.Normal(0.0, 2.0).expand([3]).to_event(1))
    s = numpyro.sample("s", dist.HalfNormal(1.0))
    m = numpyro.sample("m", dist.HalfNormal(1.0))
    a = numpyro.sample("a", dist.Normal(0.0, m).expand([8]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ b + a[GROUP], s), obs=y)


def labelled(x, y):
    """A switch that one row decides, beside a mean."""
    p = numpyro.sample("p", dist.Beta(2.0, 3.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("above", dist.Bernoulli(p), obs=(y > 0).astype(int))


PROGRAMS = {
    "a Gaussian": (conjugate, lb.CAVI()),
    "a share": (labelled, lb.CAVI()),
    "given a scale": (scaled, lb.Given(("s",))),
    "given two scales": (two_scales, lb.Given(("s", "m"))),
    "scales over points": (two_scales, lb.Integrated()),
}


@cache
def fitted(name):
    model, method = PROGRAMS[name]
    return lb.fit(model, X, LEVELS, method=method)


def program_of(fit):
    from lowerbound.model import trace_model

    return trace_model(fit.original, fit.call.args, fit.call.kwargs)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_posterior_is_seen_to_be_one(name):
    fit = fitted(name)
    assert fit.answer.exact
    assert fit.verdict is EXACT
    assert holds(fit, program_of(fit))


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_evidence_that_is_wrong_is_seen(name):
    fit = fitted(name)
    off = 1.0 if name == "scales over points" else 0.02
    assert not holds(replace(fit, answer=replace(fit.answer, elbo=fit.elbo + off)), program_of(fit))


@pytest.mark.parametrize("name", ["a Gaussian", "given a scale"])
def test_a_q_that_is_a_little_beside_the_posterior_is_judged_like_any_other(name):
    fit = fitted(name)
    q, program = fit.q, program_of(fit)
    moved = jax.tree.map(np.asarray, q.parameters)
    (natural,) = moved["inner"] if isinstance(moved, dict) else moved
    linear = next(key for key, array in natural.items() if array.shape[-1] == 3 and array.ndim < 3)
    natural[linear] = natural[linear] * 1.05
    wrong = replace(fit, answer=replace(fit.answer, q=Q(q.family, moved, q.values)))
    assert not holds(wrong, program)
    verdict = judged(wrong, 1.0, program)
    assert verdict is not EXACT
    assert verdict.evidence is not None


def test_weights_of_a_grid_that_are_those_of_other_nodes_are_seen():
    fit = fitted("given two scales")
    parameters = dict(fit.q.parameters)
    parameters["log_weights"] = np.asarray(parameters["log_weights"])[::-1]
    wrong = replace(fit, answer=replace(fit.answer, q=Q(fit.q.family, parameters)))
    assert not holds(wrong, program_of(fit))
