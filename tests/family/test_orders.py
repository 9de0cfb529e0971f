"""Orders of codes."""

import numpy as np
import pytest

from lowerbound.family.numerics.orders import order_of


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64])
@pytest.mark.parametrize("groups", [1, 200, 70_000, 2**40])
def test_codes_stand_in_the_order_that_comparisons_find(dtype, groups):
    most = min(groups, np.iinfo(dtype).max)
    codes = np.random.default_rng(groups % 97).integers(0, most, 5_000, endpoint=True).astype(dtype)
    assert (order_of(codes) == np.argsort(codes, kind="stable")).all()


def test_no_codes_have_no_order():
    assert order_of(np.zeros(0, int)).shape == (0,)
