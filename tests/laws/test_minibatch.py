"""Law 5, its stochastic half: SVI on all rows with step 1 is CAVI, and statistics add up."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.laws.rowwise import Rowwise, rowwise
from tests.models.case import Case


@pytest.fixture(scope="session")
def rows(case: Case) -> Rowwise:
    found = rowwise(case)
    if found is None:
        pytest.skip("its rows are not exchangeable, or do not add up")
    return found


def close(first, second, law: str, tolerance: float = 1e-10) -> None:
    size = np.max(np.abs(second), initial=1.0)
    assert_allclose(first, second, rtol=tolerance, atol=tolerance * size, err_msg=law)


def test_expected_statistics_are_all_that_global_factors_see(rows):
    found = rows.of_whole
    close(*found["energy"], "energy of the rows")
    assert found["gradients"], "some global factor depends on the rows"
    for full, reduced in found["gradients"]:
        for name in full:
            close(reduced[name], full[name], f"gradient of {name}")


def test_averaged_minibatch_targets_are_the_full_target(rows):
    """eq:noisy-nat-grad is unbiased: over a pass, targets scaled by N/B average to the target.

    Later blocks see the earlier ones moved, so the law is about the first that is updated.
    """
    if rows.whole.rows.engine.joint.blocks[rows.whole.sweep.order[0]].sequential:
        pytest.skip("its elements are updated in turn, and each sees the others moved")
    averaged_targets(rows)


def averaged_targets(rows: Rowwise) -> None:
    first = rows.whole.shared.numbers.index(rows.whole.sweep.order[0])
    tolerance = 1e-9 if len(rows.whole.rows.local) < 2 else 1e-3
    one, two = (part["step"][first] for part in rows.of_halves["parts"])
    whole = rows.of_whole["step"][first]
    for name in whole:
        close(0.5 * (one[name] + two[name]), whole[name], f"target of {name}", tolerance)


def test_statistics_of_two_halves_add_up_to_those_of_the_whole(rows):
    added, whole = rows.of_halves["added"], rows.of_whole["seen"]
    # Coupled local factors are found by a search, which ends a little earlier or later.
    tolerance = 1e-10 if len(rows.whole.rows.local) < 2 else 1e-3
    close(added["worth"], whole["worth"], "two shards = one", min(tolerance, 1e-5))
    for both, one in zip(added["gradients"], whole["gradients"], strict=True):
        for name in one:
            close(both[name], one[name], f"gradient of {name}", tolerance)


def test_rows_of_weight_zero_do_not_count(rows):
    for part in rows.of_halves["parts"]:
        for both, kept in zip(part["added"][0], part["kept"][0], strict=True):
            close(both, kept, "a row and the others = all rows")
        for both, kept in zip(part["added"][1], part["kept"][1], strict=True):
            close(both, kept, "their entropies")


def test_a_full_batch_with_step_one_is_a_sweep(rows):
    """alg:svi with B = N and step 1 is alg:cavi, the local factors being optimal in both."""
    found = rows.of_whole
    for step, sweep in zip(found["step"], found["sweep"], strict=True):
        for name in sweep:
            close(step[name], sweep[name], f"natural parameter {name}")
    close(*found["bounds"], "the ELBO of both")
