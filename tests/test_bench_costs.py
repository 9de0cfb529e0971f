"""The benchmark of costs: what is right to the factor, and every miss by name."""

import math
from dataclasses import replace

from benchmarks.cost_models import PROGRAMS
from benchmarks.foretold import FACTOR, Foretold, is_near, summary
from benchmarks.stress_models import programs


def row(name, expected, seconds, megabytes=100.0):
    return Foretold(name, "CAVI()", expected, seconds, 100.0, megabytes)


def test_an_estimate_is_right_within_the_factor_on_either_side():
    assert is_near(1.0, 1.0)
    assert is_near(0.99 * FACTOR, 1.0)
    assert is_near(1.0, 0.99 * FACTOR)
    assert not is_near(1.01 * FACTOR, 1.0)
    assert not is_near(1.0, 1.01 * FACTOR)
    assert not is_near(math.nan, 1.0)


def test_every_miss_is_named_and_what_did_not_end_is_not_compared():
    rows = [row("a", 1.0, 2.0), row("b", 1.0, 4.0), row("c", 1.0, 1.0, 900.0), Foretold("d")]
    aside = [one for one in rows if one.is_aside and one.is_known]
    near = [one for one in aside if one.program != "b"]
    lines = summary("some", rows).splitlines()
    assert lines[0] == "some: 3 programs with a cost that was foretold, of 4"
    assert f"within a factor of 3: 2 of 3, {len(near)} of the {len(aside)} kept aside" in lines[1]
    assert lines[1].endswith("target >= 0.9: NOT MET")
    assert lines[2] == "    outside: b (4.0)"
    assert lines[4] == "    outside: c (9.0)"


def test_half_of_the_programs_are_kept_aside_by_their_names():
    names = [*programs(), *PROGRAMS]
    assert len(set(names)) == len(names)
    aside = sum(Foretold(name).is_aside for name in names)
    assert 0.35 < aside / len(names) < 0.65


def test_ranges_that_are_printed_are_counted_by_themselves():
    loose = [replace(row(name, 10.0, s), within=5.0) for name, s in (("e", 49.0), ("f", 51.0))]
    said = "  seconds in the range that is printed: 1 of 2 that are loose"
    assert said in summary("some", [*loose, row("a", 1.0, 2.0)]).splitlines()
    assert said not in summary("some", [row("a", 1.0, 2.0)]).splitlines()
