"""Law 3: coordinate ascent never lowers the ELBO: several random starts, update by update."""

from tests.laws import checks
from tests.laws.derived import in_single_precision

# In float32 every sum of n terms is rounded at 6e-8 relative of the largest partial sum, and the
# terms of an ELBO cancel: a fall of this size, relative to the ELBO, is rounding.
SINGLE = 1e-5


def test_no_update_lowers_the_elbo(derived):
    checks.monotone(derived)


def test_sweep_reports_the_elbo(derived):
    checks.reported_elbo(derived)


def test_no_update_lowers_the_elbo_in_single_precision(derived):
    single = in_single_precision(derived)
    checks.monotone(single, slack=SINGLE)
    checks.reported_elbo(single, tolerance=SINGLE)
