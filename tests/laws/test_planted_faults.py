"""Law 9: each planted fault turns a law red; without the fault the same law holds."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import Array
from numpyro.distributions import constraints

import lowerbound as lb
from lowerbound.ascent import State, Sweep
from lowerbound.family.factors.precision import Gamma
from lowerbound.family.meanfield import MeanField
from lowerbound.joint import certificate, inputs_of
from lowerbound.joint import derive as derivation
from lowerbound.joint.blocks.block import Block
from lowerbound.joint.templates import conjugate
from lowerbound.joint.templates.table import TEMPLATES
from tests.laws import checks
from tests.laws.derived import Derived, derive
from tests.models import (
    test_diagonal_mixture,
    test_factorial_mixture,
    test_gamma_poisson,
    test_poisson_mixture,
    test_unknown_mean_precision,
)
from tests.models.case import Case

Patch = pytest.MonkeyPatch


# --------------------------------------------------------------------------------------------------
# Models beyond the zoo that some faults need


def tempered(x, scale=12.5):
    """A minibatch of 8 rows that stands for 100: its plate is scaled by N / B."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    with numpyro.plate("batch", len(x)), numpyro.handlers.scale(scale=scale):
        numpyro.sample("x", dist.Normal(mu, 1.0), obs=x)


def deviation(x):
    """A flat prior on the standard deviation: sigma^-2 is Gamma."""
    sigma = numpyro.sample("sigma", dist.ImproperUniform(constraints.positive, (), ()))
    with numpyro.plate("data", len(x)):
        numpyro.sample("x", dist.Normal(0.0, sigma), obs=x)


def deviation_evidence(x) -> float:
    """log of the integral over sigma of prod Normal(x; 0, sigma)."""
    a, b = 0.5 * (len(x) - 1), 0.5 * x @ x
    return float(math.lgamma(a) - a * np.log(b) - np.log(2) - 0.5 * len(x) * np.log(2 * np.pi))


def data(size: int) -> Callable[[int], Any]:
    return lambda seed: ((np.random.default_rng(seed).normal(1.0, 2.0, size=size),), {})


TEMPERED = Case("tempered", tempered, data(8))
DEVIATION = Case("deviation", deviation, data(20), evidence=deviation_evidence, exact=True)


# --------------------------------------------------------------------------------------------------
# Laws: functions of a freshly derived case


def derive_time_certificate(derived: Derived) -> None:
    """What `lb.fit` and `lb.explain` run on every model."""
    with jax.enable_x64(True):
        try:
            certificate(derived.joint, inputs_of(derived.model), derived.family.statistics)()
        except lb.errors.CertificateError as error:
            raise AssertionError(str(error)) from error


def exact_elbo(derived: Derived) -> None:
    """ELBO = evidence, for the one case whose evidence is at hand here."""
    args, _ = DEVIATION.arguments(0)
    checks.equal(derived.climb["elbo"][0, -1, -1], deviation_evidence(*args))


# --------------------------------------------------------------------------------------------------
# Faults


def wrong_plate_scale(patch: Patch) -> None:
    """The scale N / B of a plate is forgotten."""
    summed = derivation._summed

    def unscaled(value: Any, record: Any, fixed: Any, weight: Any) -> Any:
        record = {k: v for k, v in record.items() if k != "scale"}
        return summed(value, record, {**fixed, "scale": None}, weight)

    patch.setattr(derivation, "_summed", unscaled)


def dropped_jacobian(patch: Patch) -> None:
    """A of z = tau^(1/p) without the -log|p| of the change of variables."""
    original = Gamma.log_normalizer
    patch.setattr(
        Gamma, "log_normalizer", lambda self, n: original(self, n) + np.log(abs(self.power))
    )


def dropped_constant(patch: Patch) -> None:
    """The Normal density without its -log(2 pi)/2."""
    original = TEMPLATES["Normal"]

    def density(x: Any, loc: Any, scale: Any) -> Any:
        return conjugate.add(original.density(x, loc, scale), 0.5 * np.log(2 * np.pi))

    patch.setitem(TEMPLATES, "Normal", replace(original, density=density))


def wrong_sign(patch: Patch) -> None:
    """The Gamma density with exp(+rate x)."""
    original = TEMPLATES["Gamma"]

    def density(x: Any, concentration: Any, rate: Any) -> Any:
        sound = original.density(x, concentration, rate)
        return conjugate.add(sound, conjugate.times(2.0, rate, x))

    patch.setitem(TEMPLATES, "Gamma", replace(original, density=density))


def swapped_axes(patch: Patch) -> None:
    """A K by D statistic is read at [d, k]: with K = D every shape is right."""
    original = Block.read

    def transposed(self: Block, *args: Any) -> Any:
        reads = original(self, *args)
        if reads is None or self.kind != "gamma":
            return reads
        return [replace(read, index=read.index[::-1]) for read in reads]

    patch.setattr(Block, "read", transposed)


def square_of_the_mean(patch: Patch) -> None:
    """E[x]^2 in place of E[x^2]: equal at points, so that no certificate can see it."""
    original = Block.read

    def squared(self: Block, *args: Any) -> Any:
        reads = original(self, *args)
        if reads is None or self.kind != "normal":
            return reads
        return [
            new
            for read in reads
            for new in ([replace(read, statistic="x")] * 2 if read.statistic == "x2" else [read])
        ]

    patch.setattr(Block, "read", squared)


def wrong_expectation(patch: Patch) -> None:
    """log E[z] in place of E[log z] for Gamma factors."""
    original = Gamma.mean

    def mean(self: Gamma, natural: Any) -> Any:
        found = original(self, natural)
        return {**found, "log": jnp.log(found["power"]) / self.power}

    patch.setattr(Gamma, "mean", mean)


def stale_local_step(patch: Patch) -> None:
    """Other factors see the categories' statistics of one sweep ago."""
    original = Sweep.update
    before: dict[int, Any] = {}

    def update(self: Sweep, arrays: Any, state: State, number: int, step: float = 1.0) -> Any:
        local = [b.number for b in self.family.blocks if b.kind == "categorical"]
        if number in local:
            before[number] = state.means[number]
            return original(self, arrays, state, number, step)
        stale = State(state.naturals, tuple(
            before.get(n, mean) if n in local else mean for n, mean in enumerate(state.means)
        ))  # fmt: skip
        new, score = original(self, arrays, stale, number, step)
        means = (new.means[n] if n == number else state.means[n] for n in range(len(state.means)))
        return State(new.naturals, tuple(means)), score

    patch.setattr(Sweep, "update", update)


def forgotten_entropy(patch: Patch) -> None:
    """The ELBO without the entropy of the first factor."""
    original = MeanField.entropy

    def entropy(self: MeanField, naturals: Any, means: Any, arrays: Any, number: int) -> Array:
        return jnp.where(number == 0, 0.0, original(self, naturals, means, arrays, number))

    patch.setattr(MeanField, "entropy", entropy)


@dataclass(frozen=True)
class Fault:
    """A fault, a model it touches, and the laws that must turn red."""

    plant: Callable[[Patch], None]
    case: Case
    laws: tuple[Callable[[Derived], None], ...]


BOTH = (checks.certificate, derive_time_certificate)
FAULTS = (
    Fault(wrong_plate_scale, TEMPERED, BOTH),
    Fault(dropped_jacobian, DEVIATION, (exact_elbo,)),
    Fault(dropped_constant, test_unknown_mean_precision.CASE, BOTH),
    Fault(wrong_sign, test_gamma_poisson.CASE, BOTH),
    Fault(swapped_axes, test_poisson_mixture.CASE, BOTH),
    Fault(square_of_the_mean, test_unknown_mean_precision.CASE, (checks.affine,)),
    Fault(wrong_expectation, test_poisson_mixture.CASE, (checks.unit_step,)),
    Fault(stale_local_step, test_factorial_mixture.CASE, (checks.monotone,)),
    Fault(stale_local_step, test_diagonal_mixture.CASE, (checks.monotone,)),
    Fault(forgotten_entropy, test_unknown_mean_precision.CASE, (checks.unit_step,)),
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f"{f.plant.__name__}-{f.case.name}")
def test_planted_fault_turns_a_law_red(fault, monkeypatch):
    sound = derive(fault.case)
    for law in fault.laws:
        law(sound)
    fault.plant(monkeypatch)
    faulty = derive(fault.case)
    for law in fault.laws:
        with pytest.raises(AssertionError):
            law(faulty)
