"""Comparing a derived fit with an oracle, through the public interface only."""

import warnings
from collections.abc import Mapping
from itertools import islice

import numpy as np
from numpy.testing import assert_allclose

import lowerbound as lb
from tests.models.case import Case
from tests.oracles.expectations import Moments

SWEEPS = (1, 2, 5)


def assert_sites_equal(
    fit: "lb.Fit", sites: Mapping[str, Moments | np.ndarray], rtol: float, atol: float = 1e-12
) -> None:
    """Means and deviations, or the probabilities of discrete sites, equal those of the oracle."""
    for name, expected in sites.items():
        if isinstance(expected, Moments):
            pairs = [("mean", fit.mean(name), expected.mean), ("sd", fit.sd(name), expected.sd)]
        else:
            pairs = [("probs", fit.posterior[name].probs, expected)]
        for what, found, wanted in pairs:
            # Plates may leave axes of length one that the oracle does not have; what the oracle
            # says nothing about is NaN there.
            wanted = np.asarray(wanted)
            found, said = np.asarray(found).reshape(wanted.shape), ~np.isnan(wanted)
            message = f"{what} of {name!r}"
            assert_allclose(found[said], wanted[said], rtol=rtol, atol=atol, err_msg=message)


def assert_sweeps_equal(case: Case, *, seed: int = 0) -> None:
    """Sweep by sweep, the ELBO and every factor equal the hand-written ones to 1e-10."""
    args, kwargs = case.arguments(seed)
    start = case.start(seed)
    steps = list(islice(case.oracle(start, *args, **kwargs), max(SWEEPS)))
    for sweeps in SWEEPS:
        method = lb.CAVI(init=start, max_sweeps=sweeps, tolerance=0.0, blocks=case.blocks)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", lb.errors.ConvergenceWarning)
            fit = lb.fit(case.model, *args, method=method, seed=0, **kwargs)
        expected = [step.elbo for step in steps[:sweeps]]
        assert_allclose(fit.history.elbo, expected, rtol=1e-10, err_msg="elbo by sweep")
        assert_sites_equal(fit, steps[sweeps - 1].sites, rtol=1e-10)


def assert_exact(case: Case, posterior: Mapping[str, Moments], *, seed: int = 0) -> None:
    """The posterior and the evidence, to 1e-8."""
    args, kwargs = case.arguments(seed)
    fit = lb.fit(case.model, *args, method="cavi", seed=0, **kwargs)
    assert_allclose(fit.elbo, case.evidence(*args, **kwargs), rtol=1e-8)
    assert_sites_equal(fit, posterior, rtol=1e-8)
