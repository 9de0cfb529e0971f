"""The coordinates of theta and u: a change of variables, and an integral where that is exact."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import HalfCauchy, HalfNormal
from scipy.stats import multivariate_normal

from lowerbound.compiled import quickly
from lowerbound.methods.chains.trajectories import differentiated
from lowerbound.methods.hierarchy.finding_theta import predictors_of
from lowerbound.methods.sampling.whitened import (
    Dense,
    Scaled,
    Single,
    Whitened,
    standing_still,
)
from lowerbound.model import trace_model
from tests.methods.sampling import programs as written
from tests.methods.sampling.programs import HALVES, HEARD, X, Y

MANY = 200
LINEAR = (written.centred, written.noncentred)
CURVED = {written.binary: HEARD, written.robust: Y}


def whitened(program, y) -> Whitened:
    with jax.enable_x64(True):
        found = predictors_of(trace_model(program, (X, y), {}), (), MANY)
        place = 0.3 * np.sin(np.arange(found.count))
        still = standing_still(found, np.zeros(found.dimension), place, np.ones(found.lines))
        return Whitened(found, still)


def places(one: Whitened, seed: int) -> np.ndarray:
    return 0.7 * np.random.default_rng(seed).normal(size=one.size)


@pytest.mark.parametrize("program", LINEAR, ids=lambda f: f.__name__)
@pytest.mark.parametrize("seed", range(2))
def test_effects_are_integrated_out_exactly(program, seed):
    one = whitened(program, Y)
    assert one.predictors.theta == ("tau", "sigma", "lam")
    assert one.size == 6
    t = places(one, seed)
    tau, sigma, *lam = np.exp(t)
    scale = tau * np.array(lam)
    law = multivariate_normal(np.zeros(9), (X * scale**2) @ X.T + sigma**2 * np.eye(9))
    with jax.enable_x64(True):
        prior = HalfCauchy(0.5).log_prob(tau) + HalfNormal(2.0).log_prob(sigma)
        prior += HalfCauchy(1.0).log_prob(jnp.asarray(lam)).sum() + t.sum()
        found = float(quickly(one.density)(jnp.asarray(t), one.given))
    np.testing.assert_allclose(found, law.logpdf(Y) + float(prior), rtol=1e-9)


@pytest.mark.parametrize("program", CURVED, ids=lambda f: f.__name__)
@pytest.mark.parametrize("seed", range(2))
def test_other_densities_are_changes_of_variables(program, seed):
    one = whitened(program, CURVED[program])
    predictors = one.predictors
    with jax.enable_x64(True):
        vector = jnp.asarray(places(one, seed))
        t, u = vector[: predictors.dimension], vector[predictors.dimension :]
        z = quickly(one.effects)(t, u, one.given)
        slope = quickly(jax.jacobian(one.effects, argnums=1))(t, u, one.given)
        expected = predictors.density(np.asarray(t), np.asarray(z))
        expected += float(jnp.linalg.slogdet(slope)[1])
        found = float(quickly(one.density)(vector, one.given))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("program", [written.noncentred, written.binary], ids=lambda f: f.__name__)
def test_the_gradient_is_that_of_the_density(program):
    one = whitened(program, HEARD if program is written.binary else Y)
    vector = places(one, 0)
    with jax.enable_x64(True):
        density = differentiated(one.density, jnp.asarray(vector), one.given)
        slope = np.asarray(quickly(jax.grad(density))(jnp.asarray(vector), one.given))
        every = quickly(jax.vmap(one.density, in_axes=(0, None)))
        steps = 1e-5 * np.eye(len(vector))
        ahead, behind = (np.asarray(every(vector + step, one.given)) for step in (steps, -steps))
    np.testing.assert_allclose(slope, (ahead - behind) / 2e-5, rtol=1e-6, atol=1e-7)


def test_rows_that_move_together_are_summed_once():
    kinds = {
        program: {type(part) for part in whitened(program, y).given.parts}
        for program, y in {
            written.centred: Y,
            written.noncentred: Y,
            written.binary: HEARD,
            written.uneven: Y,
        }.items()
    }
    assert kinds[written.centred] == kinds[written.noncentred] == {Scaled, Single}
    assert kinds[written.binary] == {Scaled, Single}
    assert kinds[written.uneven] == {Dense, Single}


def test_rows_that_do_not_are_summed_all_the_same():
    one = whitened(written.uneven, Y)
    t = places(one, 1)
    tau, *rest = np.exp(t)
    sigma, lam = np.array(rest[:2]), np.array(rest[2:])
    noise = np.diag(sigma[HALVES] ** 2)
    law = multivariate_normal(np.zeros(9), (X * (tau * lam) ** 2) @ X.T + noise)
    with jax.enable_x64(True):
        prior = HalfCauchy(0.5).log_prob(tau) + HalfCauchy(1.0).log_prob(jnp.asarray(lam)).sum()
        prior += HalfNormal(2.0).log_prob(jnp.asarray(sigma)).sum() + t.sum()
        found = float(quickly(one.density)(jnp.asarray(t), one.given))
    np.testing.assert_allclose(found, law.logpdf(Y) + float(prior), rtol=1e-9)
