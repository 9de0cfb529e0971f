"""Functions through known values, and how far they are to be believed between these."""

import numpy as np
import pytest

from lowerbound.family.numerics.surrogate import Frame, interpolate

POINTS = np.linspace(-4.0, 4.0, 97)[:, None]


@pytest.fixture(scope="module")
def interpolation():
    """A smooth function of one number, at so many points that their kernel is nearly singular."""
    flat, one = np.zeros(1), np.ones(1)
    values = np.sin(POINTS[:, 0])
    frame = Frame(flat, np.eye(1), one, flat, flat)
    return interpolate(
        frame, POINTS, values, np.ones(97), np.zeros(97), np.zeros((0, 1)), before=None
    )


def test_a_smooth_function_is_known_between_many_points(interpolation):
    between = (POINTS[1:] + POINTS[:-1]) / 2
    errors = interpolation.surrogate(between) - np.sin(between[:, 0])
    assert abs(errors).max() < 1e-4
    # By an inverse of the kernel, whose condition is 6e10, it is noise: 1e-3 of the scale.
    assert interpolation.doubt(between).max() < 1e-4 * interpolation.scale


def test_doubts_are_the_diagonal_of_their_covariance_and_grow_outside(interpolation):
    t = np.linspace(-3.9, 8.0, 40)[:, None]
    doubt = interpolation.doubt(t)
    spread = np.diag(interpolation.covariance(t))
    np.testing.assert_allclose(doubt**2, np.maximum(spread, 0.0), atol=1e-9 * spread.max())
    assert doubt[-1] > 100 * doubt[0]
    far = interpolation.doubt(np.array([[200.0]]))
    np.testing.assert_allclose(far, interpolation.scale, rtol=1e-6)  # that of the prior


def test_coefficients_go_through_other_values(interpolation):
    values = np.cos(POINTS[:, 0])
    found = interpolation.coefficients(values)
    through = interpolation.surrogate
    other = interpolation.surrogate.__class__(
        through.frame, through.points, found, through.lengths, through.shares, 0.0, through.dead
    )
    known = other(POINTS) + through.frame.fall(POINTS)
    np.testing.assert_allclose(known, values, atol=1e-4)
