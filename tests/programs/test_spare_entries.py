"""Entries of latent sites that have no density: where nothing reads them, nothing else moves."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.model import trace_model

RNG = np.random.default_rng(3)
X = RNG.normal(size=14)
Y = 1.0 + 2.0 * X + 0.5 * RNG.normal(size=14)
SEEN = np.arange(14) % 4 != 1


def line(x: Any) -> tuple[Any, Any]:
    slope = numpyro.sample("slope", dist.Normal(0.0, 5.0))
    return slope * x, numpyro.sample("s", dist.HalfNormal(2.0))


def imputed(x: Any, y: Any, seen: Any) -> None:
    mean, s = line(x)
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(mean, s), obs=y, obs_mask=seen)


def imputed_vectors(x: Any, y: Any, seen: Any) -> None:
    mean, s = line(x)
    both = dist.Normal(mean[:, None] * jnp.ones(2), s).to_event(1)
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", both, obs=jnp.stack([y, y], axis=1), obs_mask=seen)


def padded(x: Any, y: Any, seen: Any) -> None:
    """Rows with latent values of their own, some of which are padding."""
    mean, s = line(x)
    with numpyro.plate("rows", len(x)), numpyro.handlers.mask(mask=seen):
        level = numpyro.sample("level", dist.Normal(mean, s))
        numpyro.sample("y", dist.Normal(level, 0.3), obs=y)


def given(program: Any, rows: Any) -> lb.Fit:
    y = np.where(SEEN, Y, 0.0)  # what is not seen is no matter
    args = (X[rows], y[rows], SEEN[rows])
    return lb.fit(program, *args, progress=False)


@pytest.mark.parametrize("program", [imputed, imputed_vectors, padded])
def test_masked_entries_that_nothing_reads_change_nothing(program: Any) -> None:
    whole, fewer = given(program, slice(None)), given(program, SEEN)
    assert whole.elbo == pytest.approx(fewer.elbo, abs=1e-6)
    for site in ("slope", "s"):
        assert float(whole.mean(site)) == pytest.approx(float(fewer.mean(site)), abs=1e-6)
        assert float(whole.sd(site)) == pytest.approx(float(fewer.sd(site)), rel=1e-5)
    other = ({*whole.posterior} - {"slope", "s"}).pop()
    assert np.isfinite(whole.sd(other)).all()


def test_imputed_entries_are_what_the_line_predicts() -> None:
    fit = given(imputed, slice(None))
    expected = float(fit.mean("slope")) * X[~SEEN]
    np.testing.assert_allclose(fit.mean("y_unobserved")[~SEEN], expected, atol=1e-6)


def test_coordinates_of_a_gaussian_have_no_mask_either() -> None:
    method = lb.Gaussian(noncentred=("level",))
    fit = lb.fit(padded, X, np.where(SEEN, Y, 0.0), SEEN, method=method, progress=False)
    assert float(fit.mean("slope")) == pytest.approx(2.0, abs=0.5)
    assert (fit.sd("level") < 10.0).all()


def density_of_its_own(y: Any) -> None:
    """A prior that is written as a factor: what is masked is read."""
    with numpyro.handlers.mask(mask=False):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    numpyro.factor("prior", -0.125 * jnp.sum(z**2))
    numpyro.sample("y", dist.Normal(z.sum(), 1.0), obs=y)


def test_a_masked_site_that_is_read_keeps_its_mask() -> None:
    """The prior has sd 2, whatever the masked distribution says."""
    fit = lb.fit(density_of_its_own, 1.5, progress=False)
    precision = np.eye(2) / 4.0 + np.ones((2, 2))
    np.testing.assert_allclose(
        fit.mean("z"), 1.5 * np.linalg.solve(precision, np.ones(2)), rtol=0.02
    )
    np.testing.assert_allclose(fit.sd("z"), np.sqrt(np.diag(np.linalg.inv(precision))), rtol=0.05)


def test_a_threshold_reads_what_it_compares() -> None:
    """Its slope is zero wherever it is looked at; an entry that is read stays without a density."""

    def program(y: Any) -> None:
        with numpyro.handlers.mask(mask=np.array([True, False])):
            z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([2]))
        numpyro.sample("y", dist.Normal(jnp.where(z[1] > 0.0, 1.0, -1.0), 1.0), obs=y)

    model = trace_model(program, (np.array(0.3),), {})
    with jax.enable_x64(True):
        values = [{"z": jnp.array([0.1, second])} for second in (0.5, 2.5)]
        first, second = (float(model.log_density(z, {"y": jnp.array(0.3)})) for z in values)
    assert first == second
