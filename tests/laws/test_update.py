"""Law 5: the coordinate update is a unit natural-gradient step of the autodiff ELBO."""

from tests.laws import checks


def test_update_is_a_unit_natural_gradient_step(derived):
    checks.unit_step(derived)
