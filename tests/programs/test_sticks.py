"""Stick-breaking weights as NumPyro's documentation writes them: exact Beta factors."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import betaln, digamma, logsumexp

import lowerbound as lb

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.normal(-4.0, 1.0, 12), RNG.normal(0.0, 1.0, 8), RNG.normal(5.0, 1.0, 10)])
T, ALPHA, WIDE = 5, 1.3, 5.0


def by_pad(v):
    left = (1 - v).cumprod(-1)
    return jnp.pad(v, (0, 1), constant_values=1) * jnp.pad(left, (1, 0), constant_values=1)


def by_concatenation(v):
    left = jnp.concatenate([jnp.ones(1), jnp.cumprod(1.0 - v)])
    return jnp.concatenate([v, jnp.ones(1)]) * left


def by_product(v):
    pieces = [jnp.prod(1 - v[:k]) * (v[k] if k < T - 1 else 1.0) for k in range(T)]
    return jnp.stack(pieces)


def mixture(x, weights):
    with numpyro.plate("sticks", T - 1):
        v = numpyro.sample("v", dist.Beta(1.0, ALPHA))
    with numpyro.plate("components", T):
        mu = numpyro.sample("mu", dist.Normal(0.0, WIDE))
    with numpyro.plate("rows", len(x)):
        z = numpyro.sample("z", dist.Categorical(weights(v)))
        numpyro.sample("x", dist.Normal(mu[z], 1.0), obs=x)


def sweep(resp: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
    """One sweep of Blei and Jordan (2006), from responsibilities: these again, the ELBO, q(v)."""
    counts = resp.sum(0)
    after = counts[::-1].cumsum()[::-1]
    a, b = 1 + counts[:-1], ALPHA + after[1:]
    log_v, log_rest = digamma(a) - digamma(a + b), digamma(b) - digamma(a + b)
    log_weights = np.append(log_v, 0.0) + np.append(0.0, log_rest.cumsum())
    precision = 1 / WIDE**2 + counts
    mean, var = (resp.T @ X) / precision, 1 / precision
    log_x = -0.5 * np.log(2 * np.pi) - 0.5 * ((X[:, None] - mean) ** 2 + var)
    logits = log_weights + log_x
    own = logsumexp(logits, axis=1, keepdims=True)
    kl_v = betaln(1, ALPHA) - betaln(a, b) + (a - 1) * log_v + (b - ALPHA) * log_rest
    kl_mu = 0.5 * ((mean**2 + var) / WIDE**2 - 1 - np.log(var / WIDE**2))
    return np.exp(logits - own), float(own.sum() - kl_v.sum() - kl_mu.sum()), np.stack([a, b])


@pytest.mark.parametrize("weights", [by_pad, by_concatenation, by_product])
def test_the_updates_are_those_of_the_paper(weights):
    fit = lb.fit(mixture, X, weights, method=lb.CAVI(tolerance=1e-10), seed=1)
    resp, elbo, sticks = sweep(np.asarray(fit.posterior["z"].probs))
    assert fit.elbo == pytest.approx(elbo, rel=1e-7)
    np.testing.assert_allclose(fit.posterior["z"].probs, resp, atol=1e-4)
    found = fit.posterior["v"]
    np.testing.assert_allclose(found.concentration1, sticks[0], rtol=1e-4)
    np.testing.assert_allclose(found.concentration0, sticks[1], rtol=1e-4)


def test_the_ladder_takes_exact_updates():
    plan = lb.explain(mixture, X, by_pad)
    assert {row.site: (row.family, row.update) for row in plan.rows} == {
        "v": ("Beta", "exact"),
        "mu": ("Normal", "exact"),
        "z": ("Categorical", "exact"),
    }


I = np.array([0, 0, 1, 2, 4, 4, 1, 0])


def test_the_evidence_of_observed_pieces():
    def model(i):
        v = numpyro.sample("v", dist.Beta(1.0, ALPHA).expand([T - 1]))
        with numpyro.plate("rows", len(i)):
            numpyro.sample("i", dist.Categorical(by_pad(v)), obs=i)

    counts = np.bincount(I, minlength=T)
    after = counts[::-1].cumsum()[::-1]
    evidence = betaln(1 + counts[:-1], ALPHA + after[1:]).sum() - (T - 1) * betaln(1, ALPHA)
    assert lb.fit(model, I).elbo == pytest.approx(evidence, rel=1e-9)


def test_pieces_that_data_choose_before_the_logarithm_are_left_over():
    def model(i):
        v = numpyro.sample("v", dist.Beta(1.0, ALPHA).expand([T - 1]))
        numpyro.factor("i", jnp.log(by_pad(v)[i]).sum())

    (left,) = lb.explain(model, I, method=lb.CAVI()).residuals
    assert (left.site, left.operation, left.latents) == ("i", "log(v)", ("v",))


def test_an_unknown_concentration():
    def model(x):
        alpha = numpyro.sample("alpha", dist.Gamma(2.0, 1.0))
        v = numpyro.sample("v", dist.Beta(1.0, alpha).expand([T - 1]).to_event(1))
        mu = numpyro.sample("mu", dist.Normal(0.0, WIDE).expand([T]))
        with numpyro.plate("rows", len(x)):
            z = numpyro.sample("z", dist.Categorical(by_pad(v)))
            numpyro.sample("x", dist.Normal(mu[z], 1.0), obs=x)

    plan = lb.explain(model, X, method=lb.CAVI())
    families = {row.site: row.family for row in plan.rows}
    assert plan.exact
    assert (families["alpha"], families["v"]) == ("Free", "Beta")


def scalar_sites(k):
    """A stick a site, as programs without plates have them."""
    return [numpyro.sample(f"v{i}", dist.Beta(1.0, ALPHA)) for i in range(k)]


def written_out(v):
    a, b, c = v
    return jnp.stack([a, b * (1 - a), c * (1 - a) * (1 - b), (1 - a) * (1 - b) * (1 - c)])


def by_what_is_left(v):
    left, pieces = 1.0, []
    for stick in v:
        pieces.append(left * stick)
        left = left * (1 - stick)
    return jnp.array([*pieces, left])


def halved(v):
    a, b, c = v
    return jnp.stack([2 * a, 2 * b * (1 - a), 2 * c * (1 - a - b + a * b)]) / 2


@pytest.mark.parametrize("weights", [written_out, by_what_is_left])
def test_sticks_that_are_sites_of_their_own(weights):
    def model(i):
        w = weights(scalar_sites(3))
        with numpyro.plate("rows", len(i)):
            numpyro.sample("i", dist.Categorical(w), obs=i)

    i = I[I < 4]
    counts = np.bincount(i, minlength=4)
    after = counts[::-1].cumsum()[::-1]
    evidence = betaln(1 + counts[:-1], ALPHA + after[1:]).sum() - 3 * betaln(1, ALPHA)
    assert lb.explain(model, i).exact
    assert lb.fit(model, i).elbo == pytest.approx(evidence, rel=1e-9)


def test_logs_of_pieces_with_factors_and_constants():
    def model(counts):
        numpyro.factor("i", (counts * jnp.log(halved(scalar_sites(3)))).sum())

    counts = np.array([3.0, 2.0, 1.0])
    a, b = 1 + counts, ALPHA + np.array([3.0, 1.0, 0.0])
    evidence = betaln(a, b).sum() - 3 * betaln(1, ALPHA)
    assert lb.fit(model, counts).elbo == pytest.approx(evidence, rel=1e-9)
