"""The density of hyperparameters and a sparse Gaussian given them: draws, density, moments, files.

Two effects in each of four groups, correlated, with two scales and a correlation: given these the
posterior is Gaussian and its evidence known, so that q is the posterior and log p - log q constant.
"""

import dataclasses
import math
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import biject_to, constraints

import lowerbound as lb
from lowerbound.compiled import quickly
from lowerbound.family.densities.integrated import Integrated
from lowerbound.family.family_records import family_from, family_record
from lowerbound.family.q import Q
from lowerbound.family.sparse.elimination import Pattern
from lowerbound.methods.hierarchy.points.integration import integrate
from lowerbound.methods.hierarchy.points.kept_points import integrated
from lowerbound.methods.hierarchy.surface import Solved
from lowerbound.model import trace_model
from lowerbound.rewrite.coordinates import Coordinates
from lowerbound.run.walking import ended

G, EACH = 4, 3
GROUP = np.repeat(np.arange(G), EACH)
X = np.tile([-1.0, 0.2, 1.1], G)
Y = X * np.repeat([0.5, -0.4, 1.2, 0.1], EACH) + np.repeat([1.0, 0.3, 2.0, -0.5], EACH)
Y = Y + 0.5 * np.sin(7.0 * np.arange(len(Y)))
SITES = ("tau", "corr")


def slopes(x, y=None):
    tau = numpyro.sample("tau", dist.HalfNormal(1.0).expand([2]).to_event(1))
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    corr = numpyro.sample("corr", dist.LKJCholesky(2, 2.0))
    with numpyro.plate("groups", G):
        root = tau[:, None] * corr
        b = numpyro.sample("b", dist.MultivariateNormal(jnp.zeros(2), scale_tril=root))
    with numpyro.plate("rows", len(x)):
        mean = mu + b[GROUP, 0] + b[GROUP, 1] * x
        numpyro.sample("y", dist.Normal(mean, 0.5), obs=y)


def design():
    """Of mu and b, in this order."""
    matrix = np.zeros((len(X), 1 + 2 * G))
    matrix[:, 0] = 1.0
    matrix[np.arange(len(X)), 1 + 2 * GROUP] = 1.0
    matrix[np.arange(len(X)), 2 + 2 * GROUP] = X
    return matrix


@quickly
def given(t):
    """L, the precision and the mean of z at t."""
    positive, correlated = (biject_to(s) for s in (constraints.positive, constraints.corr_cholesky))
    tau, corr = positive(t[:2]), correlated(t[2:])
    log_prior = dist.HalfNormal(1.0).log_prob(tau).sum() + dist.LKJCholesky(2, 2.0).log_prob(corr)
    log_prior += positive.log_abs_det_jacobian(t[:2], tau).sum()
    log_prior += correlated.log_abs_det_jacobian(t[2:], corr)
    root = tau[:, None] * corr
    own = jnp.linalg.inv(root @ root.T)
    prior = jax.scipy.linalg.block_diag(jnp.ones((1, 1)), *G * [own])
    matrix = design()
    precision = prior + matrix.T @ matrix * 4.0
    loc = jnp.linalg.solve(precision, matrix.T @ Y * 4.0)
    spread = matrix @ jnp.linalg.inv(prior) @ matrix.T + 0.25 * jnp.eye(len(Y))
    value = dist.MultivariateNormal(jnp.zeros(len(Y)), spread).log_prob(Y) + log_prior
    return value, (precision, loc, jnp.diag(jnp.linalg.inv(precision)))


rising = quickly(jax.grad(lambda t: given(t)[0]))


@cache
def pattern():
    some = np.asarray(given(jnp.zeros(3))[1][0])
    rows, columns = np.nonzero(np.tril(some))
    return Pattern.of(rows, columns, len(some), np.repeat([0, 1], [1, 2 * G]))


def surface(t, warm, slope):
    with jax.enable_x64(True):
        t = jnp.asarray(t)
        value, (precision, loc, variance) = given(t)
        slopes = jax.grad(lambda t: given(t)[0])(t) if slope else None
    own = pattern()
    entries = np.asarray(precision)[own.rows, own.columns]
    rest = np.asarray(loc), entries, np.asarray(variance)
    return Solved(
        np.asarray(t), float(value), None if slopes is None else np.asarray(slopes), *rest
    )


@cache
def found():
    with jax.enable_x64(True):
        coordinates = Coordinates.of(trace_model(slopes, (X, Y), {}))
    integral = ended(integrate(surface, np.zeros(3)))
    return integral, *integrated(coordinates, SITES, integral, pattern())[:2]


@cache
def density():
    return Q(*found()[1:])


@cache
def draws(count=4000, seed=0):
    sample = density().sample(count, jax.random.key(seed))
    return {name: np.asarray(array) for name, array in sample.items()}


def test_draws_have_the_shapes_of_the_sites_and_their_supports():
    sample = draws()
    shapes = {name: array.shape[1:] for name, array in sample.items()}
    assert shapes == {"tau": (2,), "mu": (), "corr": (2, 2), "b": (G, 2)}
    assert (sample["tau"] > 0).all()
    np.testing.assert_allclose((sample["corr"] ** 2).sum(axis=-1), 1.0, atol=1e-12)


def test_a_seed_gives_the_same_draws():
    again = density().sample(5, jax.random.key(3))
    for name, array in density().sample(5, jax.random.key(3)).items():
        np.testing.assert_array_equal(array, again[name])
    assert (density().sample(5, jax.random.key(4))["mu"] != again["mu"]).all()


@pytest.mark.parametrize("site", ["tau", "mu", "corr", "b"])
def test_moments_are_those_of_draws(site):
    """4000 draws, five standard errors: wrong with probability 1e-5."""
    mean, variance = density().moments(site)
    sample = draws()[site]
    error = np.sqrt(variance / len(sample))
    assert (abs(sample.mean(axis=0) - mean) <= 5 * error + 1e-12).all()
    spread = ((sample - mean) ** 2 - variance).std(axis=0) / math.sqrt(len(sample))
    assert (abs(sample.var(axis=0) - variance) <= 5 * spread + 1e-12).all()


@pytest.mark.parametrize("site", ["tau", "mu", "b"])
def test_marginals_have_the_quantiles_of_draws(site):
    law = density().marginal(site)
    with jax.enable_x64(True):
        quantile = quickly(lambda probability: law.icdf(probability))
        for probability in (0.1, 0.5, 0.9):
            below = (draws()[site] <= np.asarray(quantile(probability))).mean(axis=0)
            assert (abs(below - probability) < 0.035).all()


def test_the_marginal_of_a_correlation_has_a_density():
    law = density().marginal("corr")
    with jax.enable_x64(True):
        own = jnp.asarray(draws()["corr"][:10])
        assert np.isfinite(np.asarray(quickly(lambda value: law.log_prob(value))(own))).all()


def test_the_density_is_that_of_the_draws():
    """The mean of h / q over draws is one for every density h: five standard errors, two seeds.

    h is Gaussian in the unconstrained coordinates, narrower than q: 4000 draws, 1e-5 in all.
    """
    coordinates = density().family.coordinates
    for seed in (0, 1):
        sample = draws(4000, seed)
        with jax.enable_x64(True):
            u, volume = quickly(jax.vmap(lambda one: coordinates.placed(one, {})))(
                {name: jnp.asarray(a) for name, a in sample.items()}
            )
        u, volume = np.asarray(u), np.asarray(volume)
        spread = 0.5 * np.cov(u.T)
        away = u - u.mean(axis=0)
        square = (away * np.linalg.solve(spread, away.T).T).sum(axis=1)
        log_h = -0.5 * (square + np.linalg.slogdet(2 * np.pi * spread)[1])
        each = np.exp(log_h - density().log_prob(sample) - volume)
        assert each.mean() == pytest.approx(1.0, abs=5 * each.std() / math.sqrt(len(each)))


@pytest.mark.parametrize("laws", [1, 2, 100])
def test_draws_near_few_anchors_are_weighed_as_any_others(laws):
    """One factor of each anchor makes draws and their log q, which is that of `log_prob`."""
    _, family, parameters = found()
    values, log_q = family.weighed(parameters, 3, 16, laws)
    assert {name: array.shape[1:] for name, array in values.items()} == {
        name: array.shape[1:] for name, array in draws(2).items()
    }
    assert 1 <= len(log_q) <= 16
    np.testing.assert_allclose(log_q, family.log_prob(parameters, values), rtol=1e-9)
    held = family._held(parameters)
    t, _, _ = family._coordinates(held, values)
    anchors = np.unique(held.nearest(held.smoothed.placed.inward(t)))
    assert len(anchors) <= laws
    assert len(held.anchors) > 2


def test_q_is_the_posterior_where_z_is_gaussian_given_theta():
    sample = {name: a[:200] for name, a in draws().items()}
    model = trace_model(slopes, (X, Y), {})
    with jax.enable_x64(True):
        each = quickly(jax.vmap(lambda z: model.log_density(z, model.arguments.data)))(
            {name: jnp.asarray(a) for name, a in sample.items()}
        )
    ratio = np.asarray(each) - density().log_prob(sample)
    log_evidence = found()[0].log_evidence
    assert log_evidence - ratio.mean() < 0.15  # KL(q || posterior), of correlations of z
    evidence = math.log(np.mean(np.exp(ratio - ratio.max()))) + ratio.max()
    assert evidence == pytest.approx(log_evidence, abs=0.1)


def test_moments_of_z_are_those_of_the_posterior():
    """Against sums over 1024 nodes of theta, with z solved at each of them."""
    smoothed = found()[0].smoothed
    t, weights = smoothed.placed.outward(smoothed.nodes[:1024]), smoothed.weights[:1024]
    with jax.enable_x64(True):
        _, (_, loc, variance) = quickly(jax.vmap(given))(jnp.asarray(t))
    weights, loc = weights / weights.sum(), np.asarray(loc)
    mean = weights @ loc
    sd = np.sqrt(weights @ (np.asarray(variance) + (loc - mean) ** 2))
    moments = [density().moments(site) for site in ("mu", "b")]
    means, variances = (np.concatenate([np.ravel(m[i]) for m in moments]) for i in (0, 1))
    assert abs((means - mean) / sd).max() < 0.01
    assert abs(np.sqrt(variances) / sd - 1).max() < 0.01


def test_theta_beyond_all_that_was_seen_has_no_density():
    sample = {name: a[:2].copy() for name, a in draws().items()}
    sample["tau"][0] = 1e30
    density_of = density().log_prob(sample)
    assert density_of[0] == -np.inf
    assert np.isfinite(density_of[1])


def test_points_of_no_weight_are_not_kept():
    integral, _, parameters = found()
    assert len(parameters["t"]) <= len(integral.solved)


def test_hyperparameters_alone():
    """A program that is all theta: nothing is left to be Gaussian."""

    def bare(t, warm, slope):
        one = surface(t, warm, slope)
        nothing = np.zeros(0)
        return dataclasses.replace(one, loc=nothing, precision=nothing, variance=nothing)

    integral = ended(integrate(bare, np.zeros(3)))
    coordinates = found()[1].coordinates
    shapes = {name: coordinates.shapes[name] for name in SITES}
    alone = Coordinates(None, shapes, {name: coordinates.supports[name] for name in SITES})
    nothing = Pattern.of(*np.zeros((2, 0), int), 0, np.zeros(0))
    q = Q(*integrated(alone, SITES, integral, nothing)[:2])
    for site in SITES:
        np.testing.assert_allclose(q.moments(site)[0], density().moments(site)[0], atol=1e-9)
    assert np.isfinite(q.log_prob(q.sample(5, jax.random.key(0)))).all()


def test_a_record_and_back():
    family, parameters = found()[1:]
    back = family_from(family_record(family), {})
    assert isinstance(back, Integrated)
    values = {name: a[:5] for name, a in draws().items()}
    np.testing.assert_allclose(
        Q(back, parameters).log_prob(values), density().log_prob(values), rtol=1e-12
    )


def test_a_fit_with_it_does_what_fits_do(tmp_path):
    plain = lb.fit(slopes, X, Y, method=lb.Laplace())
    answer = dataclasses.replace(plain.answer, q=density(), terms=None)
    fit = dataclasses.replace(plain, answer=answer)
    assert fit.predictive(draws=20)["y"].shape == (20, len(Y))
    assert np.isfinite(fit.log_predictive(X, Y, draws=50)).all()
    assert {"tau[0]", "mu", "b[0, 1]"} <= set(fit.summary().index)
    assert np.isfinite(sum(fit.elbo_terms.values()))
    assert fit.posterior["tau"].mean == pytest.approx(fit.mean("tau"))
    fit.save(tmp_path / "fit.lb")
    loaded = lb.load(tmp_path / "fit.lb", slopes)
    for name in ("tau", "mu", "corr", "b"):
        # Sums of arrays laid out otherwise in memory differ in their last digits.
        np.testing.assert_allclose(loaded.mean(name), fit.mean(name), rtol=1e-9)
        np.testing.assert_allclose(loaded.sample(7)[name], fit.sample(7)[name], rtol=1e-8)
