"""Joint blocks: their marginals by integration, large means, and the domain."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from lowerbound.compiled import quickly
from lowerbound.family import NormalGamma, NormalWishart
from lowerbound.family.numerics.distributions import SharedScaleStudentT


@pytest.mark.parametrize("power", [1.0, -2.0])
def test_normal_gamma_marginals_integrate_the_joint_density(power: float) -> None:
    """Both marginals are integrals of exp(<natural, t> - A) on a grid of (log z, x)."""
    a, b, m, precision = 3.0, 2.0, 0.7, 1.5
    family = NormalGamma((), (), power)
    natural = {
        "log": jnp.asarray(power * (a + 0.5) - 1),
        "power": jnp.asarray(-b - precision * m**2 / 2),
        "px": jnp.asarray(precision * m),
        "pxx": jnp.asarray(-precision / 2),
    }
    log_tau = np.linspace(-9, 4, 600)
    z, x = np.exp(log_tau / power), np.linspace(-30, 30, 1501)
    grid = {"z": jnp.asarray(z)[:, None], "x": jnp.asarray(x)[None, :]}
    t = family.statistics(grid)
    log_q = sum(natural[key] * t[key] for key in t) - family.log_normalizer(natural)
    density = np.exp(np.asarray(log_q))
    marginals = family.marginals(natural)
    jacobian = (z / abs(power))[:, None]  # dz = z/|power| d log tau
    over_z = np.trapezoid(density * jacobian, log_tau, axis=0)
    np.testing.assert_allclose(over_z, np.exp(marginals["x"].log_prob(x)), atol=1e-5)
    over_x = np.trapezoid(density, x, axis=1)
    inner = log_tau > -4  # beyond it x spreads past the grid
    np.testing.assert_allclose(
        over_x[inner], np.exp(marginals["z"].log_prob(z))[inner], rtol=1e-4, atol=1e-8
    )


def test_shared_scale_student_matches_the_multivariate_student() -> None:
    rng = np.random.default_rng(0)
    loc, scale = rng.normal(size=(2, 3)), np.exp(rng.normal(size=(2, 3)))
    df, x = jnp.asarray([3.0, 7.0]), rng.normal(size=(5, 2, 3))
    ours = SharedScaleStudentT(df, jnp.asarray(loc), jnp.asarray(scale))
    theirs = dist.MultivariateStudentT(df, loc, scale[..., None] * jnp.eye(3))
    assert ours.batch_shape == theirs.batch_shape
    assert ours.event_shape == theirs.event_shape
    summary = quickly(lambda law: (law.log_prob(x), law.mean, law.variance))  # laws are pytrees
    for mine, reference in zip(summary(ours), summary(theirs), strict=True):
        np.testing.assert_allclose(mine, reference)
    draws = jax.eval_shape(lambda key: ours.sample(key, (4,)), jax.random.key(0))
    assert draws.shape == (4, 2, 3)
    heavy = SharedScaleStudentT(jnp.asarray(1.0), jnp.zeros(2), jnp.ones(2))
    assert np.all(np.isinf(heavy.variance))
    assert np.all(np.isinf(heavy.mean))


def test_normal_wishart_in_one_dimension_is_normal_gamma() -> None:
    a, b, m, kappa = 3.0, 2.0, 0.7, 1.5
    wishart, gamma = NormalWishart((), 1), NormalGamma((), ())
    q = {
        "log": jnp.asarray(a - 0.5),
        "power": jnp.asarray(-b - kappa * m**2 / 2),
        "px": jnp.asarray(kappa * m),
        "pxx": jnp.asarray(-kappa / 2),
    }
    w = {
        "matrix": q["power"][None, None],
        "logdet": q["log"],
        "px": q["px"][None],
        "xpx": q["pxx"],
    }
    np.testing.assert_allclose(wishart.log_normalizer(w), gamma.log_normalizer(q))
    ours, theirs = wishart.mean(w), gamma.mean(q)
    names = {"matrix": "power", "logdet": "log", "px": "px", "xpx": "pxx"}
    for key, other in names.items():
        np.testing.assert_allclose(np.squeeze(ours[key]), theirs[other])
    np.testing.assert_allclose(wishart.entropy(w, ours), gamma.entropy(q, theirs))


def test_block_entropy_does_not_depend_on_the_mean() -> None:
    """Nor does it cancel: in float32, A - <natural, mean> has no digits left at m = 1000."""
    family = NormalGamma((2,), ())
    m = jnp.float32([0.0, 1000.0])
    natural = {
        "log": jnp.float32([2.5, 2.5]),
        "power": -64 - m**2 / 2,
        "px": m,
        "pxx": jnp.float32([-0.5, -0.5]),
    }
    entropy = family.entropy(natural, family.mean(natural))
    np.testing.assert_allclose(entropy[0], entropy[1], rtol=1e-4)


def test_blocks_agree_with_vmap() -> None:
    family, element = NormalGamma((3,), (2,), -1.0), NormalGamma((), (2,), -1.0)
    q = family.default()
    q["px"] = q["px"] + jnp.arange(6.0).reshape(3, 2) / 10
    batched = quickly(lambda q: (family.log_normalizer(q), family.mean(q)["pxx"]))(q)
    mapped = quickly(jax.vmap(lambda q: (element.log_normalizer(q), element.mean(q)["pxx"])))(q)
    for ours, theirs in zip(batched, mapped, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-14)


def test_domains() -> None:
    family = NormalGamma((4,), (2,))
    q = {
        "log": jnp.asarray([1.0, 0.0, 1.0, 1.0]),  # a = log + 1 - D/2
        "power": jnp.asarray([-1.0, -1.0, -1.0, -1.0]),
        "px": jnp.asarray([[0.0, 0], [0, 0], [2, 2], [0, 0]]),
        "pxx": jnp.asarray([[-0.5, -0.5], [-0.5, -0.5], [-0.5, -0.5], [-0.5, 0.5]]),
    }
    np.testing.assert_array_equal(quickly(family.in_domain)(q), [True, False, False, False])
    full = NormalGamma((), (2,), full=True)
    bad = {**full.default(), "pxx": jnp.asarray([[-1.0, 3.0], [3.0, -1.0]])}
    assert not bool(quickly(full.in_domain)(bad))
    wishart = NormalWishart((), 2)
    start, in_domain = wishart.default(), quickly(wishart.in_domain)
    assert bool(in_domain(start))
    assert not bool(in_domain({**start, "px": jnp.asarray([3.0, 0.0])}))
    assert not bool(in_domain({**start, "xpx": jnp.asarray(0.5)}))
    assert not bool(in_domain({**start, "logdet": jnp.asarray(-0.5)}))


def test_full_precision_needs_a_vector() -> None:
    with pytest.raises(ValueError, match=r"expects event_shape \(D,\); found event_shape \(2, 2\)"):
        NormalGamma((), (2, 2), full=True)
    assert NormalGamma((), (2, 2)).size == math.prod((2, 2))
