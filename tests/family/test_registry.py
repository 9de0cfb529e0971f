"""The table of block kinds."""

import re
from pathlib import Path

import jax.numpy as jnp
import pytest

import lowerbound
from lowerbound.family import FAMILIES, Free, Gamma, Multinomial, NormalGamma, family_of
from lowerbound.joint.blocks.kind import takers


def test_family_of_builds_each_kind() -> None:
    assert family_of("gamma", (3,), power=-1.0) == Gamma((3,), -1.0)
    block = family_of("normal_gamma", (), event_shape=(2,), power=1.0, full=True)
    assert block == NormalGamma((), (2,), 1.0, True)
    static = {
        "gaussian": {"dim": 2},
        "dirichlet": {"dim": 2},
        "categorical": {"dim": 2},
        "markov_chain": {"length": 3, "dim": 2},
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


def test_no_code_matches_a_family_by_name() -> None:
    """What depends on a family is a method or a flag of its class, so that a new one can say it."""
    source = Path(lowerbound.__file__).parent
    matched = re.compile(r'\.(?:kind|name)\s*(?:==|!=|in|not in)\s*[("]+(\w+)')
    names = {*FAMILIES, *(family.name for family in FAMILIES.values())}
    found = [
        (path.name, name)
        for path in source.rglob("*.py")
        for name in matched.findall(path.read_text("utf-8"))
        if name in names
    ]
    assert found == []


def test_a_family_says_what_the_derivation_asks() -> None:
    assert list(FAMILIES) == [family.kind for family in FAMILIES.values()]
    for family in FAMILIES.values():
        assert family.domains, family
        if family.alone and not family.free_form:
            assert family in takers(family.domains[0])
            assert takers(family.domains[0])[-1].free_form == (family.domains[0] in Free.domains)
