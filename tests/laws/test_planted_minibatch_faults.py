"""Law 9 for minibatches: each planted fault turns a law red; without it the same law holds."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import pytest

from lowerbound.joint.energy.expected import Reduction
from lowerbound.methods.stochastic import lap, steps
from lowerbound.methods.stochastic.minibatch import Minibatch
from tests.laws import test_minibatch as laws
from tests.laws.rowwise import Rowwise, rowwise
from tests.models import test_diagonal_mixture

Patch = pytest.MonkeyPatch
CASE = test_diagonal_mixture.CASE


def wrong_batch_scale(patch: Patch) -> None:
    """The scale N/B of a batch is forgotten."""
    original = steps.one_step

    def unscaled(batch: Any, schedule: Any, inputs: Any, carry: Any, scale: Any) -> Any:
        return original(batch, schedule, inputs, carry, jnp.ones(()))

    patch.setattr("tests.laws.rowwise.one_step", unscaled)


def scaled_prior(patch: Patch) -> None:
    """The scale N/B multiplies the expected statistics twice."""
    original = Minibatch.expected

    def twice(self: Minibatch, arrays: Any, state: Any) -> Any:
        sums, entropy = original(self, arrays, state)
        return tuple(2.0 * s for s in sums), entropy

    patch.setattr(Minibatch, "expected", twice)


def stale_local_step(patch: Patch) -> None:
    """Local factors of the prior, not those that are optimal for the batch."""

    def prior(self: Minibatch, arrays: Any, means: Any) -> Any:
        state = self.rows.solve(arrays, means)
        flat = {
            n: {k: jnp.ones_like(a) / a.shape[-1] for k, a in state.means[n].items()}
            for n in self.rows.local
        }
        return state._replace(means=tuple(flat.get(n, m) for n, m in enumerate(state.means)))

    original = steps.one_step

    def stale(*args: Any) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Minibatch, "local", prior)
            return original(*args)

    patch.setattr("tests.laws.rowwise.one_step", stale)


def dropped_coefficient(patch: Patch) -> None:
    """One sum over rows is lost."""
    original = Reduction.__call__

    def short(self: Reduction, arrays: Any, statistics: Any) -> Any:
        first, *rest = original(self, arrays, statistics)
        return (jnp.zeros_like(first), *rest)

    patch.setattr(Reduction, "__call__", short)


def ignored_weights(patch: Patch) -> None:
    """Rows that only fill a batch count like the others."""
    original = lap.local_sums

    def every(batch: Any, inputs: Any, means: Any) -> Any:
        ones = jnp.ones_like(inputs["weights"])
        return original(batch, {**inputs, "weights": ones}, means)

    patch.setattr("tests.laws.rowwise.local_sums", every)


FAULTS: tuple[tuple[Callable[[Patch], None], Callable[[Rowwise], None]], ...] = (
    (wrong_batch_scale, laws.averaged_targets),
    (scaled_prior, laws.test_a_full_batch_with_step_one_is_a_sweep),
    (stale_local_step, laws.test_a_full_batch_with_step_one_is_a_sweep),
    (dropped_coefficient, laws.test_expected_statistics_are_all_that_global_factors_see),
    (ignored_weights, laws.test_rows_of_weight_zero_do_not_count),
)


@pytest.fixture(scope="module")
def sound() -> Rowwise:
    found = rowwise(CASE)
    assert found is not None
    return found


@pytest.mark.parametrize(("fault", "law"), FAULTS, ids=lambda f: f.__name__)
def test_a_planted_fault_turns_its_law_red(fault, law, sound, monkeypatch):
    law(sound)
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        law(replace(sound))


def test_the_laws_hold_without_faults(sound):
    laws.test_statistics_of_two_halves_add_up_to_those_of_the_whole(sound)
