"""The judge of the posteriordb benchmark: names, errors, and what a failure counts as."""

import math
import re
import sys
from functools import cache
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from benchmarks.posteriordb import Row, errors, found_folder, summary, table
from benchmarks.posteriordb_peers import forget


def reference(names, mean, sd):
    return SimpleNamespace(names=names, mean=np.array(mean), sd=np.array(sd))


def test_errors_are_in_reference_sds_and_by_flattened_name():
    beta = np.arange(6.0).reshape(2, 3)
    moments = {"beta": (beta, np.ones((2, 3))), "tau": (np.array(4.0), np.array(math.e))}
    found = errors(reference(["beta[2,1]", "tau"], [2.0, 4.0], [2.0, 1.0]), moments)
    assert found["mean_max"] == pytest.approx(0.5)  # beta[2,1] is beta[1, 0] = 3
    assert found["mean_rms"] == pytest.approx(0.5 / math.sqrt(2))
    assert found["sd_rms"] == pytest.approx(math.sqrt((math.log(2) ** 2 + 1) / 2))
    assert found["missing"] == ()


def test_names_that_a_fit_lacks_are_said_and_left_out():
    moments = {"beta": (np.zeros(2), np.ones(2))}
    found = errors(reference(["beta[3]", "beta[2]", "mu"], [9.0, 1.0, 9.0], [1.0] * 3), moments)
    assert found["missing"] == ("beta[3]", "mu")
    assert found["mean_rms"] == found["mean_max"] == 1.0
    expected = "expected some of ['mu'], found ['beta[1]', 'beta[2]'] in the fit"
    with pytest.raises(ValueError, match=re.escape(expected)):
        errors(reference(["mu"], [0.0], [1.0]), moments)


@pytest.mark.parametrize("sd", [0.0, math.nan])
def test_a_degenerate_or_undefined_sd_is_a_gross_failure(sd):
    found = errors(reference(["mu"], [0.0], [1.0]), {"mu": (np.array(0.0), np.array(sd))})
    row = Row("a", "nuts", 0, **found)
    assert row.score == math.inf
    assert row.gross


def test_summary_counts_failures_and_each_family_once():
    def row(model, method, seed, score, cold, **more):
        return Row(model, method, seed, 1.0, score, 0.01, cold, cold, warm=1.0, **more)

    rows = [
        row("a", "lowerbound", 0, 0.05, 2.0),
        row("a", "lowerbound", 1, 0.2, 2.0),
        row("b", "lowerbound", 0, 0.02, 1.0),
        Row("b", "lowerbound", 1, reason="ValueError: no"),
        row("c", "lowerbound", 0, 2.0, 3.0),
        row("c", "lowerbound", 1, 2.0, 3.0, warned=("Warning: far",)),
        *(row(model, "nuts", 0, 0.04, 4.0) for model in "abc"),
    ]
    runs = table(rows, {"a": "year1972", "b": "year1976", "c": "school_x"})
    line = summary(runs).loc["lowerbound"]
    assert (line.models, line.runs, line.near, line.always) == (3, 6, 0, 0)
    assert (line.gross, line.silent) == (3, 1)
    assert line.score == 2.0  # of 0.125, 2 and infinity: a seed that failed is not forgotten
    assert list(runs.family.unique()) == ["year", "school"]
    assert line.cold == 2.0
    assert line["cold/"] == pytest.approx(0.5)
    assert summary(runs).loc["nuts", "share"] == 1.0


def test_a_folder_without_the_data_is_an_error_that_says_how_to_name_one(tmp_path):
    expected = (
        f"Expected a folder with posteriordb's index.json and ports; found none at {tmp_path}.\n"
        "Name the folder by --folder or by the environment variable LOWERBOUND_POSTERIORDB."
    )
    with pytest.raises(SystemExit, match=re.escape(expected)):
        found_folder(str(tmp_path))


def test_a_package_forgets_what_it_compiled_but_not_its_tables(monkeypatch):
    package = ModuleType("remembering")
    package._engines = {"a program": 1}
    package._TABLE = {"normal": 1}
    package.options = cache(object)
    first = package.options()
    monkeypatch.setitem(sys.modules, "remembering", package)
    forget("remembering")
    assert package._engines == {}
    assert package._TABLE == {"normal": 1}
    assert package.options() is not first
