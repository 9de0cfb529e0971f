"""The laws as plain functions: each raises AssertionError when the law is broken."""

import numpy as np
from numpy.testing import assert_allclose

from tests.laws.derived import Derived


def assert_small(difference: np.ndarray, size: np.ndarray, tolerance: float, law: str) -> None:
    """|difference| <= tolerance * (1 + size), elementwise."""
    excess = np.abs(difference) / (1.0 + size)
    assert np.all(excess <= tolerance), f"{law}: off by {np.max(excess):.2g} relative"


def certificate(derived: Derived) -> None:
    """energy(t(z)) = log p(x, z)."""
    found = derived.points
    energy = found["energy"] + found["base_measure"]
    size = found["size"] + np.abs(found["log_density"])
    assert_small(energy - found["log_density"], size, 1e-9, "energy(t(z)) = log p(x, z)")


def affine(derived: Derived) -> None:
    """Second differences of the energy in each block's statistics vanish, but for quadratures."""
    found = derived.points
    middle, ends = found["line"][:, :1], found["line"][:, 1:]
    second = (ends[:, 0::2] - 2.0 * middle + ends[:, 1::2])[:, straight(derived)]
    size = found["line_size"].max(axis=1, keepdims=True)
    assert_small(second, size, 1e-9, "the energy is affine in each block")


def complete_conditionals(derived: Derived) -> None:
    """log p(z_j', rest) - log p(z_j, rest) = <eta_j, t(z_j') - t(z_j)> + log h(z_j')/h(z_j)."""
    found = derived.points
    log_density = found["log_density"] - found["base_measure"]
    difference = log_density[:, 1:-1] - log_density[:, :1]
    size = found["size"][:, 1:-1] + found["size"][:, :1]
    some = straight(derived)
    off = (found["conditional"] - difference)[:, some]
    assert_small(off, size[:, some], 1e-9, "complete conditionals")


def straight(derived: Derived) -> list[int]:
    """The blocks in whose mean the energy is affine."""
    return [block.number for block in derived.blocks if block.number not in derived.curved]


def monotone(derived: Derived, slack: float = 1e-10) -> None:
    """No update lowers the ELBO by more than `slack` relative."""
    bounds = derived.climb["elbo"].reshape(len(derived.climb["elbo"]), -1)
    assert np.isfinite(bounds).all(), "the ELBO is finite"
    # In the first sweep some factors still stand at a start that is no member of the family.
    bounds = bounds[:, len(derived.blocks) - 1 :]
    falls = np.minimum(np.diff(bounds, axis=1), 0.0)
    assert_small(falls, np.abs(bounds[:, 1:]), slack, "no update lowers the ELBO")


def reported_elbo(derived: Derived, tolerance: float = 1e-10) -> None:
    """The ELBO that a sweep reports is the ELBO."""
    reported, bounds = derived.climb["reported"], derived.climb["elbo"][..., -1]
    assert_small(reported - bounds, np.abs(bounds), tolerance, "the sweep reports the ELBO")


def unit_step(derived: Derived) -> None:
    """grad ELBO = F (target - natural): the update is a unit natural-gradient step."""
    found = derived.steps
    for block, gradient, product in zip(
        derived.blocks, found["gradient"], found["fisher_times_step"], strict=True
    ):
        for name in gradient:
            size = np.abs(product[name]).max()
            assert size > 0.0 or block.presence is not None, "a step of length zero tests nothing"
            assert_allclose(
                gradient[name],
                product[name],
                rtol=1e-6,
                atol=1e-6 * size + 1e-9,
                err_msg=f"natural gradient of {name} of {block.sites}",
            )


def below(elbo: float, evidence: float) -> None:
    """ELBO <= log evidence."""
    slack = 1e-9 * max(1.0, abs(evidence))
    assert elbo <= evidence + slack, f"the ELBO {elbo:.12g} exceeds the evidence {evidence:.12g}"


def equal(elbo: float, evidence: float) -> None:
    """ELBO = log evidence."""
    assert_allclose(elbo, evidence, rtol=1e-8, err_msg="ELBO = log evidence")


def within_standard_errors(elbo: float, log_weights: np.ndarray, errors: float = 4.0) -> None:
    """The mean of log p(x, z) - log q(z) over draws z of q is the ELBO, for every seed."""
    for weights in log_weights:
        rounding = 1e-9 * (1.0 + abs(elbo))
        error = weights.std(ddof=1) / np.sqrt(len(weights))
        gap = abs(weights.mean() - elbo)
        assert gap <= errors * error + rounding, f"ELBO: off by {gap / error:.2f} standard errors"
