"""The table of block kinds."""

import jax.numpy as jnp
import pytest

from lowerbound.family import FAMILIES, Gamma, Multinomial, NormalGamma, family_of


def test_family_of_builds_each_kind() -> None:
    assert family_of("gamma", (3,), power=-1.0) == Gamma((3,), -1.0)
    block = family_of("normal_gamma", (), event_shape=(2,), power=1.0, full=True)
    assert block == NormalGamma((), (2,), 1.0, True)
    static = {
        "gaussian": {"dim": 2},
        "dirichlet": {"dim": 2},
        "categorical": {"dim": 2},
        "wishart": {"dim": 2},
        "normal_wishart": {"dim": 2},
        "multinomial": {"dim": 2},
        "free": {"trees": (("z",),), "sizes": ((),), "axes": ((),)},
    }
    for kind, cls in FAMILIES.items():
        family = family_of(kind, (1,), **static.get(kind, {}))
        assert type(family) is cls
        assert set(family.statistic_shapes()) == set(family.statistic_names)


def test_unknown_kind_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"among normal, gaussian, .*poisson.*; found 'cauchy'\."):
        family_of("cauchy", ())


def test_default_asks_for_the_constants_of_the_support() -> None:
    with pytest.raises(
        ValueError, match=r"Multinomial\.default expects extras total; missing: total\."
    ):
        Multinomial((), 2).default()
    default = Multinomial((4,), 2).default({"total": jnp.asarray(3)})
    assert default["total"].shape == (4,)
