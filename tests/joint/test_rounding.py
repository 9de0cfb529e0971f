"""Densities that are lost in rounding say nothing of a derivation; all others still do."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.errors import CertificateError, UncertifiedError, UnsteadyProgramError


def far_squares(y, scale, wrong=0.0):
    """(u + 1)^2 - u^2 - 2 u, which is 1: of u = 1e9 a, nothing is left but rounding."""
    a = numpyro.sample("a", dist.Normal(0.0, 1.0).expand([40]).to_event(1))
    u = scale * a
    numpyro.factor("lost", 1e-3 * ((u + 1.0) ** 2 - u**2 - 2.0 * u).sum())
    numpyro.sample("y", dist.Normal(a.sum(), 1.0), obs=y)


def test_a_density_that_is_rounding_accuses_no_rule():
    with pytest.raises(UncertifiedError, match="of the program itself is lost in rounding"):
        lb.fit(far_squares, np.array(0.3), 1e9, method=lb.CAVI(), progress=False)


@pytest.mark.filterwarnings("ignore::lowerbound.errors.LadderWarning")
@pytest.mark.filterwarnings("ignore::lowerbound.errors.ConvergenceWarning")
def test_such_a_program_has_a_gaussian():
    fit = lb.fit(far_squares, np.array(0.3), 1e9, progress=False)
    assert fit.method == "Gaussian()"
    np.testing.assert_allclose(fit.mean("a"), 0.3 / 41, atol=0.15)
    np.testing.assert_allclose(fit.sd("a"), np.sqrt(40 / 41), rtol=0.1)


def test_near_zero_it_is_exact():
    fit = lb.fit(far_squares, np.array(0.3), 1.0, progress=False)
    np.testing.assert_allclose(fit.mean("a"), 0.3 / 41)


@pytest.mark.parametrize("size", [1e-6, 1e-3, 1.0])
def test_a_wrong_rule_is_still_accused(monkeypatch, size):
    certificate = importlib.import_module("lowerbound.joint.certificate")
    right = certificate.evaluate
    monkeypatch.setattr(certificate, "evaluate", lambda *given: right(*given) + size)

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        tau = numpyro.sample("tau", dist.Gamma(2.0, 3.0))
        numpyro.sample("y", dist.Normal(mu, 1 / jnp.sqrt(tau)), obs=y)

    with pytest.raises(CertificateError):
        lb.fit(model, np.array([0.3, 1.0, -0.2]), method=lb.CAVI(), progress=False)


def test_a_program_that_draws_numbers_itself_is_unsteady():
    """The derivation was said to be at fault, for a program of another density in every run."""
    rng = np.random.default_rng(0)

    def model(n):
        p = numpyro.sample("p", dist.Beta(1.0, 1.0))
        with numpyro.plate("rows", n):
            numpyro.sample("y", dist.Binomial(5, p), obs=rng.binomial(5, 0.4, n))

    with pytest.raises(UnsteadyProgramError, match="Look for numbers that it draws"):
        lb.fit(model, 40, progress=False)


@pytest.mark.judged
@pytest.mark.parametrize("seed", range(3))
def test_a_probability_next_to_one_accuses_no_rule(seed):
    """1 - p has seven digits where p = 1 - 1e-9; no argument that is near has another p."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(300, 8))
    y = (x @ rng.normal(0.0, 0.4, 8) + rng.normal(size=300) > 0).astype(int)

    def probit(x, y):
        b = numpyro.sample("b", dist.Normal(0.0, 2.0).expand([8]).to_event(1))
        numpyro.sample("y", dist.Bernoulli(jax.scipy.stats.norm.cdf(x @ b)), obs=y)

    fit = lb.fit(probit, x, y, progress=False)
    assert fit.method.startswith("CAVI")
    assert fit.verdict.trust == "all"
