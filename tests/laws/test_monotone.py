"""Law 3: coordinate ascent never lowers the ELBO, from random starts, update by update."""

import pytest

from tests.laws import checks
from tests.laws.derived import in_single_precision


def test_no_update_lowers_the_elbo(derived):
    checks.monotone(derived)


def test_sweep_reports_the_elbo(derived):
    checks.reported_elbo(derived)


def test_each_block_alone_does_not_lower_the_elbo(derived):
    checks.update_ascends(derived)
