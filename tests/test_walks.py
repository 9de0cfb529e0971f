"""The page of walks: modules are entered in the order that it lists, and programs run seldom."""

import functools
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import lowerbound as lb
from lowerbound.bound import draws
from lowerbound.estimators import LatentDirichletAllocation
from tests.methods import zoo

PAGE = Path(__file__).parent.parent / "docs" / "walks.md"
ROOT = Path(lb.__file__).parent


def listed() -> dict[str, list[str]]:
    """The modules of each section."""
    sections = re.split(r"^## ", PAGE.read_text("utf-8"), flags=re.MULTILINE)[1:]
    return {s.split("\n")[0]: re.findall(r"^\| `([\w/]+)` \|", s, re.MULTILINE) for s in sections}


LISTED = listed()


def entered(call) -> list[str]:
    """The modules of the library in the order in which a call first enters them."""
    seen: dict[str, None] = {}

    def profile(frame, event, _):
        if event == "call" and frame.f_code.co_name != "<module>":
            path = Path(frame.f_code.co_filename)
            if ROOT in path.parents:
                seen.setdefault(path.relative_to(ROOT).with_suffix("").as_posix())

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return list(seen)


class Program:
    """A program that counts its runs."""

    def __init__(self, model):
        self.runs, self.model = 0, model

        @functools.wraps(model)
        def counted(*args, **kwargs):
            self.runs += 1
            return model(*args, **kwargs)

        self.counted = counted


def fitting(example):
    program = Program(example.model)
    return program, lambda: lb.fit(program.counted, **example.call, progress=False)


def parquet(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    pq.write_table(pa.table({"y": rng.normal(size=400)}), tmp_path / "rows.parquet")

    def call():
        rows = lb.stream(tmp_path / "rows.parquet", y="y")
        method = lb.SVI(batch_size=100, steps=8)
        return lb.fit(zoo.clusters, **rows, method=method, progress=False)

    return call


def topics():
    counts = np.random.default_rng(0).poisson(0.3, size=(60, 40))
    return LatentDirichletAllocation(n_components=3).fit(counts)


def assert_in_order(found: list[str], expected: list[str]) -> None:
    assert len(expected) == len(set(expected)) > 5
    unknown = [module for module in expected if not (ROOT / f"{module}.py").exists()]
    assert unknown == []
    order = [found.index(module) if module in found else -1 for module in expected]
    assert [m for m, place in zip(expected, order, strict=True) if place < 0] == []
    assert [found[place] for place in sorted(order)] == expected


# How often each runs its program at most: to read it, to trace its density, to certify the terms.
FITS = {
    "A conjugate mixture": (zoo.CLUSTERS, 3),
    # The same with `tau` as data, of which one is certified; and twice for its linear predictors,
    # whose codes and flat directions are looked at whatever rung is taken.
    "Eight schools": (zoo.SCHOOLS, 7),
    "Logistic regression": (zoo.LOGISTIC, 3),
    # Shapes, scales, density and prior of the vector u; and its density twice for linear
    # predictors, as a term that fits no factor may be a product with a scale.
    "A black-box Gaussian": (zoo.BEND, 8),
}


@pytest.mark.parametrize("section", FITS)
def test_a_program_is_run_a_few_times(section):
    example, most = FITS[section]
    program, call = fitting(example)
    call()
    assert program.runs <= most


@pytest.mark.slow  # the profile of every Python call
@pytest.mark.parametrize("section", FITS)
def test_the_walk_of_a_call(section):
    _, call = fitting(FITS[section][0])
    for kept in vars(draws).values():
        if hasattr(kept, "cache_clear"):  # other tests may have asked for the same draws
            kept.cache_clear()
    assert_in_order(entered(call), LISTED[section])


@pytest.mark.slow
def test_the_walk_of_batches(tmp_path):
    assert_in_order(entered(parquet(tmp_path)), LISTED["SVI over Parquet"])


@pytest.mark.slow
def test_the_walk_of_topics():
    assert_in_order(entered(topics), LISTED["Topics"])
