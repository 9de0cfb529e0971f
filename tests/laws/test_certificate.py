"""Law 1: rewriting preserves value, and the energy is affine in the statistics of each block."""

from tests.laws import checks


def test_energy_is_the_log_density(derived):
    checks.certificate(derived)


def test_energy_is_affine_in_each_block(derived):
    checks.affine(derived)


def test_gradient_at_points_is_the_complete_conditional(derived):
    checks.complete_conditionals(derived)
