"""E[phi(a)] by quadrature: against adaptive quadrature, at points, and its derivatives."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats

from lowerbound.errors import CertificateError
from lowerbound.family.meanfield import MeanField
from lowerbound.joint import energy, gradient, inputs_of, multi_affine
from lowerbound.joint.certificate import certificate
from lowerbound.model import trace_model

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 2))
Y = np.array([0, 1, 1, 0])
GROUP = np.array([0, 1, 1, 2])


def logistic(x: Any, y: Any, group: Any) -> None:
    """Slopes, an intercept by group, and a predictor that is the same in two functions."""
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    u = numpyro.sample("u", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    a = x @ w + u[group]
    numpyro.sample("y", dist.Bernoulli(logits=a), obs=y)
    numpyro.factor("f", -(jnp.tanh(0.5 * a + 0.3) ** 2))


@cache
def derived() -> tuple[Any, Any, Any]:
    model = trace_model(logistic, (X, Y, GROUP))
    joint = multi_affine(model)
    return joint, joint.compress(inputs_of(model)), MeanField.of(joint.blocks)


def statistics(seed: int, scale: float) -> tuple[np.ndarray, np.ndarray, Any]:
    rng = np.random.default_rng(seed)
    mean, root = rng.normal(size=5), scale * rng.normal(size=(5, 5))
    covariance = root @ root.T
    second = covariance + np.outer(mean, mean)
    return mean, covariance, ({"x": jnp.asarray(mean), "xx": jnp.asarray(second)},)


def test_sites_of_one_predictor_share_a_factor() -> None:
    joint, _, _ = derived()
    (block,) = joint.blocks
    assert block.sites == ("w", "u")
    assert {s.curved for s in joint.summands} == {frozenset(), frozenset({0})}


@pytest.mark.parametrize("seed", range(3))
def test_expectations_equal_adaptive_quadrature(seed: int) -> None:
    joint, arrays, _ = derived()
    mean, covariance, stats_ = statistics(seed, 0.5)
    design = np.concatenate([X, np.eye(3)[GROUP]], axis=1)
    found = float(energy([s for s in joint.summands if s.site in ("y", "f")], arrays, stats_))
    wanted = 0.0
    for row, y in zip(design, Y, strict=True):
        m, sd = row @ mean, np.sqrt(row @ covariance @ row)

        def integrand(e: float, m: float = m, sd: float = sd, y: int = y) -> float:
            a = m + sd * e
            return float(
                stats.norm.pdf(e) * (y * a - np.logaddexp(0, a) - np.tanh(0.5 * a + 0.3) ** 2)
            )

        wanted += integrate.quad(integrand, -12, 12, epsabs=1e-12)[0]
    assert found == pytest.approx(wanted, abs=1e-5)


def test_at_a_point_it_is_the_function_itself() -> None:
    """The certificate: energy(t(z)) = log p(x, z); a planted fault is seen."""
    joint, _, family = derived()
    data = inputs_of(joint.model)
    certificate(joint, data, family.statistics)()

    def wrong(values: Any, arrays: Any) -> Any:
        (point,) = family.statistics(values, arrays)
        return ({"x": point["x"], "xx": point["xx"] + 1e-3 * jnp.eye(5)},)

    with pytest.raises(CertificateError):
        certificate(joint, data, wrong)()


@pytest.mark.parametrize("scale", [0.0, 0.4])
def test_gradient_is_the_derivative_of_the_energy(scale: float) -> None:
    """Also at a point mass, where the variance of the predictor is zero."""
    joint, arrays, _ = derived()
    mean, _, point = statistics(1, scale)
    found = gradient(joint.summands, arrays, point, 0)
    rng = np.random.default_rng(2)
    root = rng.normal(size=(5, 5))
    direction = {"x": jnp.asarray(rng.normal(size=5)), "xx": jnp.asarray(root @ root.T)}

    def along(step: float) -> float:
        # From a point mass only a larger variance is possible: a one-sided difference.
        moved = {k: point[0][k] + step * direction[k] for k in direction}
        return float(energy(joint.summands, arrays, (moved,)))

    # Moving x at fixed xx lowers the variance by mean x'; keep the step inside the domain.
    direction["xx"] = direction["xx"] + jnp.asarray(
        np.outer(mean, direction["x"]) + np.outer(direction["x"], mean)
    )
    slope = sum(float(jnp.sum(found[k] * direction[k])) for k in direction)
    h = 1e-5
    numeric = (-3.0 * along(0.0) + 4.0 * along(h) - along(2.0 * h)) / (2.0 * h)
    assert np.isfinite(slope)
    assert slope == pytest.approx(numeric, rel=1e-4, abs=1e-4)


def test_functions_of_one_element_are_fused() -> None:
    """z log z, and a power of z times a function of it: one statistic each, affine energy."""

    def model(y: Any) -> None:
        z = numpyro.sample("z", dist.HalfCauchy(2.0).expand([3]))
        numpyro.factor("f", z * jnp.log(z) * y - z**2 * jnp.sin(z))
        numpyro.sample("y", dist.Normal(0.0, z), obs=y)

    traced = trace_model(model, (np.array([0.5, -1.0, 2.0]),))
    joint = multi_affine(traced)
    (block,) = joint.blocks
    assert block.kind == "free"
    assert block.atoms == ()  # no array of the trace is kept
    assert all(len(s.reads) <= 1 for s in joint.summands)
    certificate(joint, inputs_of(traced), MeanField.of(joint.blocks).statistics)()


def test_large_statistics_are_refused() -> None:
    def model(y: Any) -> None:
        r = numpyro.sample("r", dist.HalfNormal(1.0))
        numpyro.sample("y", dist.NegativeBinomial2(2.0, r), obs=y)

    small = multi_affine(trace_model(model, (np.arange(10),)))
    assert small.structure.residuals == ()
    large = multi_affine(trace_model(model, (np.arange(300_000) % 7,)))
    (residual,) = large.structure.residuals
    assert residual.latents == ("r",)
    assert residual.reason == "300000 functions of it are too many for a quadrature"


@pytest.fixture(autouse=True)
def double() -> Any:
    with jax.enable_x64(True):
        yield


def test_far_predictors_are_certified_where_numpyro_clips_no_probability() -> None:
    """At draws with predictors of some hundreds NumPyro's log Phi is clipped at log(eps)."""
    x = np.linspace(-300.0, 300.0, 40)

    def probit(x: Any, y: Any) -> None:
        beta = numpyro.sample("beta", dist.Normal(0.0, 1.0))
        probs = jax.scipy.special.ndtr(beta * x)
        numpyro.sample("y", dist.Bernoulli(probs=probs), obs=y)

    with jax.enable_x64(True):
        model = trace_model(probit, (x, np.arange(40) % 2))
        joint = multi_affine(model)
        family = MeanField.of(joint.blocks)
        certificate(joint, inputs_of(model), family.statistics)()

        def wrong(values: Any, arrays: Any) -> Any:
            (point,) = family.statistics(values, arrays)
            return (jax.tree.map(lambda a: 1.01 * a, point),)

        with pytest.raises(CertificateError):
            certificate(joint, inputs_of(model), wrong)()
