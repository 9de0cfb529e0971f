"""Numbers told relative to others: a change of variables, which is read off the prior."""

import jax
import numpy as np
import pytest

from lowerbound.family.numerics.relative import Relative, relative_of


def chained(told):
    """t_1 ~ (0, e^t_0), t_2 ~ (0.5 t_1 + 1, e^(0.3 t_0 - t_1 + 0.2)): three in a row."""
    levels, widths = np.zeros((3, 3)), np.zeros((3, 3))
    levels[2, 1], widths[1, 0], widths[2, :2] = 0.5, 1.0, (0.3, -1.0)
    level, width = np.array([0.0, 0.0, 1.0]), np.array([0.0, 0.0, 0.2])
    return Relative(levels, level, widths, width, *told)


TOLD = {
    "by nothing": (np.zeros(3), np.zeros(3)),
    "by data": (np.array([0.0, 2.0, 0.3]), np.array([0.0, -1.0, 0.7])),
}


@pytest.mark.parametrize("told", TOLD)
def test_it_is_a_change_of_variables(told):
    relative = chained(TOLD[told])
    assert relative.depth == 2
    r = np.random.default_rng(0).normal(size=(20, 3))
    t = relative.outward(r)
    np.testing.assert_allclose(relative.inward(t), r, atol=1e-12)
    with jax.enable_x64(True):
        slopes = jax.vmap(jax.jacfwd(lambda r: relative.outward(r, 2)))(r)
    np.testing.assert_allclose(relative.log_volume(t), np.linalg.slogdet(slopes)[1], atol=1e-12)
    np.testing.assert_allclose(t[:, 0], r[:, 0])


def test_given_the_others_what_data_and_prior_say_is_standard():
    relative = chained(TOLD["by data"])
    t = relative.outward(np.array([0.4, 0.0, 0.0]))
    for j in (1, 2):
        level, log_scale = (one[j] for one in relative.prior(t))
        precision = np.exp(-2 * log_scale) + relative.told[j]
        mean = np.exp(-2 * log_scale) * level + relative.told[j] * relative.place[j]
        up = relative.outward(np.eye(3)[j] + np.array([0.4, 0.0, 0.0]))
        assert t[j] == pytest.approx(mean / precision)
        assert up[j] - t[j] == pytest.approx(precision**-0.5)


def quantiles(normal):
    """Logarithms: of a scale, of two around it, of one with a shift alone; one that is neither."""
    scale = normal[:, :1]
    around = 0.3 + 2.0 * scale + np.exp(scale) * normal[:, 1:3] ** 3
    shifted = scale + normal[:, 3:4]
    bent = np.exp(scale * normal[:, 4:])
    return np.concatenate([scale, around, shifted, bent], axis=1)


def test_locations_and_scales_are_read_off_the_prior():
    found = relative_of(quantiles, np.array([0, 1, 1, 3, 4]))
    assert found.members.tolist() == [False, True, True, False, False]
    np.testing.assert_allclose(found.levels[1:3, 0], 2.0, atol=1e-6)
    np.testing.assert_allclose(found.level[1:3], 0.3, atol=1e-6)
    np.testing.assert_allclose(found.widths[1:3, 0], 1.0, atol=1e-6)
    assert not found.levels[3:].any()


def test_priors_that_stand_alone_need_no_map():
    assert relative_of(lambda normal: normal, np.array([0, 1, 2])) is None
    assert relative_of(lambda normal: normal, np.zeros(3, int)) is None
