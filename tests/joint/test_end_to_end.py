"""Models of every block kind: the certificate passes and sweeps never lower the ELBO."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.joint import multi_affine
from lowerbound.model import trace_model
from tests.joint import models

RNG = np.random.default_rng(1)
X = RNG.normal(size=(9, 2)) + 3.0 * (np.arange(9) % 2)[:, None]
Y = RNG.normal(size=9) + 1.0
PAIRS = np.triu_indices(4, 1)

FITS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "diagonal mixture": (models.diagonal_mixture, (X,), {}),
    "spherical mixture": (models.spherical_mixture, (X,), {}),
    "swapped normal-gamma": (models.swapped_normal_gamma, (X,), {}),
    "swapped normal-wishart": (models.swapped_normal_wishart, (X,), {}),
    "shared precision": (models.shared_precision, (X, Y), {}),
    "inverse gamma": (models.inverse_gamma_variance, (Y,), {}),
    "wishart mixture": (models.wishart_mixture, (X,), {}),
    "intercept and slopes": (models.intercept_and_slopes, (X, Y), {}),
    "factorisation": (models.factorisation, (X,), {}),
    "transposed effects": (models.transposed_effects, (X, X), {}),
    "crossed effects": (models.crossed_effects, (np.arange(9) % 3, np.arange(9) % 4, Y), {}),
    "blockmodel": (models.blockmodel, ((RNG.uniform(size=(6, 6)) < 0.4).astype(int),), {}),
    "truncated": (models.truncated, (X, (Y > 1).astype(int)), {"side": "below"}),
    "poisson sums": (models.poisson_sums, (RNG.poisson(6.0, size=(3, 5)),), {"axis": 1}),
    "distances": (models.distances, (*PAIRS, RNG.normal(size=(6, 2))), {}),
    "random walk": (models.random_walk, (Y,), {}),
    "markov chain": (models.markov_chain, (Y,), {}),
    "scalar switch": (models.scalar_switch, (Y,), {}),
    "stacked": (models.stacked, (X, Y), {}),
}


# The rest have relatives in tests/models, which are fitted on every run.
QUICK = {"spherical mixture", "swapped normal-gamma", "poisson sums", "markov chain", "stacked"}


@pytest.mark.filterwarnings("ignore::lowerbound.errors.ConvergenceWarning")
@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in FITS]
)
def test_the_elbo_rises(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWERBOUND_STRICT", "1")
    model, args, kwargs = FITS[name]
    method = lb.CAVI(restarts=1, max_sweeps=12)
    fit = lb.fit(model, *args, method=method, progress=False, **kwargs)
    elbo = np.asarray(fit.history.elbo)
    assert np.isfinite(elbo).all()
    assert (np.diff(elbo) >= -1e-9 * (1.0 + np.abs(elbo[1:]))).all()


@pytest.mark.parametrize("rows", [5, 30])
def test_a_loop_over_rows_is_the_plate_of_them(rows):
    """Many sites of one row each leave as many summands as one site of many rows."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, rows))

    def prior():
        return numpyro.sample("a", dist.Normal(0.0, 1.0)), numpyro.sample(
            "b", dist.Normal(0.0, 1.0)
        )

    def loop(x, y):
        a, b = prior()
        for i in range(rows):
            numpyro.sample(f"y_{i}", dist.Normal(a + b * x[i], 0.5), obs=y[i])

    def plate(x, y):
        a, b = prior()
        with numpyro.plate("rows", rows):
            numpyro.sample("y", dist.Normal(a + b * x, 0.5), obs=y)

    fits = {f: lb.fit(f, x, y, method=lb.CAVI(), progress=False) for f in (loop, plate)}
    assert fits[loop].elbo == pytest.approx(fits[plate].elbo, rel=1e-12)
    assert sum(fits[loop].elbo_terms.values()) == pytest.approx(fits[loop].elbo, rel=1e-12)
    with jax.enable_x64(True):
        counts = [len(multi_affine(trace_model(f, (x, y))).summands) for f in (loop, plate)]
    assert (counts[0] == counts[1]) is (rows > 20)
