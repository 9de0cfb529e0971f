"""Sequences of counts from a hidden Markov model with Dirichlet rows and Gamma rates."""

import itertools

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpy.testing import assert_allclose
from numpyro.contrib.control_flow import scan
from scipy.special import digamma, gammaln, logsumexp, softmax

import lowerbound as lb
from tests.models.case import Arguments, Case

SHAPE, RATE, CONCENTRATION = 2.0, 0.5, 1.5


def model(x, K=2):
    with numpyro.plate("states", K):
        rows = numpyro.sample("rows", dist.Dirichlet(jnp.full(K, CONCENTRATION)))
        rates = numpyro.sample("rates", dist.Gamma(SHAPE, RATE))
    first = jnp.full(K, 1.0 / K)

    def step(before, now):
        time, counts = now
        with numpyro.plate("sequences", x.shape[0]):
            z = numpyro.sample("z", dist.Categorical(jnp.where(time == 0, first, rows[before])))
            numpyro.sample("x", dist.Poisson(rates[z]), obs=counts)
        return z, None

    scan(step, jnp.zeros(x.shape[0], int), (jnp.arange(x.shape[1])[:, None, None], x.T))


def simulate(rng: np.random.Generator, sequences: int, steps: int) -> np.ndarray:
    z = rng.integers(2, size=sequences)
    counts = []
    for _ in range(steps):
        counts.append(rng.poisson(np.array([1.0, 7.0])[z]))
        z = np.where(rng.random(sequences) < 0.8, z, 1 - z)
    return np.stack(counts, axis=1)


def arguments(seed: int) -> Arguments:
    return (simulate(np.random.default_rng(seed), 3, 12),), {"K": 2}


def small(seed: int) -> Arguments:
    return (simulate(np.random.default_rng(seed), 2, 4),), {"K": 2}


def start(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed + 100)
    return {"rows": rng.dirichlet(np.full(2, 5.0), size=2), "rates": rng.gamma(3.0, 1.0, size=2)}


def evidence(x, K) -> float:
    """The sum over all paths of the Dirichlet-multinomial and Gamma-Poisson evidences."""
    sequences, steps = x.shape
    logs = []
    for path in itertools.product(range(K), repeat=sequences * steps):
        z = np.array(path).reshape(sequences, steps)
        moves = np.zeros((K, K))
        np.add.at(moves, (z[:, :-1], z[:, 1:]), 1.0)
        log_rows = gammaln(K * CONCENTRATION) - gammaln(CONCENTRATION * K + moves.sum(1))
        log_rows = log_rows.sum() + (gammaln(CONCENTRATION + moves) - gammaln(CONCENTRATION)).sum()
        n = np.bincount(z.ravel(), minlength=K)
        s = np.bincount(z.ravel(), x.ravel(), minlength=K)
        gain = SHAPE * np.log(RATE) - gammaln(SHAPE) + gammaln(SHAPE + s)
        log_x = (gain - (SHAPE + s) * np.log(RATE + n)).sum() - gammaln(x + 1.0).sum()
        logs.append(-sequences * np.log(K) + log_rows + log_x)
    return float(logsumexp(logs))


CASE = Case(
    "hidden_markov",
    model,
    arguments,
    rows=(0,),
    start=start,
    evidence=evidence,
    small=small,
    restarts=3,
)


def test_fit_is_a_fixed_point_of_sums_over_all_paths():
    (x,), kwargs = arguments(0)
    fit = lb.fit(model, x, method=lb.CAVI(restarts=3, tolerance=1e-13), seed=0, **kwargs)
    shape, rate = (
        np.asarray(getattr(fit.posterior["rates"], n)) for n in ("concentration", "rate")
    )
    rows = np.asarray(fit.posterior["rows"].concentration)
    log_rate, mean_rate = digamma(shape) - np.log(rate), shape / rate
    log_rows = digamma(rows) - digamma(rows.sum(1, keepdims=True))

    steps = x.shape[1]
    paths = np.array(list(itertools.product(range(2), repeat=steps)))
    moves = log_rows[paths[:, :-1], paths[:, 1:]].sum(1)
    log_density = x[:, :, None] * log_rate - mean_rate  # (sequences, steps, K)
    along = log_density[:, np.arange(steps), paths].sum(-1)  # (sequences, paths)
    weights = softmax(moves + along, axis=1)
    states = np.eye(2)[paths]
    phi = np.einsum("sp,ptk->stk", weights, states)
    pair = np.einsum("sp,ptk,ptl->kl", weights, states[:, :-1], states[:, 1:])

    assert_allclose(np.asarray(fit.posterior["z"].probs).transpose(1, 0, 2), phi, atol=1e-5)
    assert_allclose(shape, SHAPE + np.einsum("st,stk->k", x, phi), rtol=1e-5)
    assert_allclose(rate, RATE + phi.sum((0, 1)), rtol=1e-5)
    assert_allclose(rows, CONCENTRATION + pair, rtol=1e-5)
