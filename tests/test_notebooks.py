"""The notebooks run, cell by cell, and are kept without what they print."""

import contextlib
import json
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot
import numpy as np
import pytest

FOLDER = Path(__file__).parent.parent / "examples" / "notebooks"
pytestmark = pytest.mark.judged


def cells_of(name: str) -> list[dict[str, Any]]:
    return json.loads((FOLDER / f"{name}.ipynb").read_text("utf-8"))["cells"]


def run_notebook(name: str, folder: Path) -> dict[str, Any]:
    """Run the code cells of a notebook in order; returns its names."""
    matplotlib.use("agg")
    names: dict[str, Any] = {}
    code = [cell for cell in cells_of(name) if cell["cell_type"] == "code"]
    with contextlib.chdir(folder):
        for number, cell in enumerate(code):
            exec(compile("".join(cell["source"]), f"{name}, cell {number}", "exec"), names)
    matplotlib.pyplot.close("all")
    return names


def test_every_notebook_is_run_here_and_kept_without_outputs() -> None:
    names = {path.stem for path in FOLDER.glob("*.ipynb")}
    assert names == {"first_fit", "mixed_model", "topics"}
    for name in names:
        code = [cell for cell in cells_of(name) if cell["cell_type"] == "code"]
        assert [cell["outputs"] for cell in code] == [[]] * len(code)


@pytest.mark.slow
def test_the_first_notebook_shows_the_fault_of_mean_field(tmp_path: Path) -> None:
    names = run_notebook("first_fit", tmp_path)
    assert names["fit"].verdict.trust == "all"
    assert names["mean_field"].sd("tau") < 0.6 * names["fit"].sd("tau")


def test_the_notebook_of_a_mixed_model_predicts_a_new_plate(tmp_path: Path) -> None:
    names = run_notebook("mixed_model", tmp_path)
    low, high = np.quantile(names["drawn"], [0.05, 0.95])
    # Two thirds germinate there; the effect of a plate makes this wider than binomial noise, +- 8.
    assert low < 67 < high
    assert high - low > 16


def test_the_notebook_of_topics_scores_new_documents(tmp_path: Path) -> None:
    names = run_notebook("topics", tmp_path)
    np.testing.assert_allclose(names["shares"].sum(axis=1), 1)
    assert names["score"] > -7.2
