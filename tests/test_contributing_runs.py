"""The skeletons of methods, rungs, sources and estimators in docs/contributing run."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lowerbound as lb
from lowerbound.errors import ArgumentError
from lowerbound.ladder import rungs

PAGES = Path(__file__).parent.parent / "docs" / "contributing"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def run(page: str) -> tuple[dict[str, Any], str]:
    """The names that a page defines, and the text that it shows."""
    names: dict[str, Any] = {"__name__": page}
    blocks = BLOCK.findall((PAGES / f"{page}.md").read_text("utf-8"))
    for number, (language, text) in enumerate(blocks):
        if language == "python":
            exec(compile(text, f"{page}.md, block {number}", "exec"), names)
    (said,) = [text for language, text in blocks if language == ""]
    return names, said.rstrip("\n")


def test_the_method_of_the_page(capsys):
    names, said = run("method")
    fit, plain = names["fit"], names["Plain"](sweeps=30)
    exact = lb.fit(names["level"], names["x"], method=lb.CAVI(tolerance=1e-13))
    assert fit.elbo == pytest.approx(exact.elbo, rel=1e-9)
    assert (fit.method, fit.stop_reason, fit.converged) == (repr(plain), said, False)
    assert fit.plan == names["plan"]
    assert len(fit.history.elbo) == 30
    with pytest.raises(ArgumentError, match="keeps no state between its steps"):
        lb.fit(names["level"], names["x"], method=plain, checkpoint="nowhere")
    with pytest.raises(ArgumentError, match="sweeps=0"):
        names["Plain"](sweeps=0)


def test_the_rung_of_the_page(monkeypatch, capsys):
    monkeypatch.setattr(rungs, "RUNGS", rungs.RUNGS)
    names, said = run("rung")
    assert "\n".join(names["plan"].ladder) == said
    prior = lb.fit(names["height"])
    assert prior.plan.ladder == ("-> prior: nothing is observed",)
    assert prior.sd("mu") == pytest.approx(1.0, rel=1e-6)


def test_the_source_of_the_page(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    names, said = run("source")
    assert repr(names["rows"]["y"]) == said
    arrays = lb.fit(
        names["level"], names["y"], method=lb.SVI(batch_size=100, steps=60, forgetting=0.7)
    )
    np.testing.assert_array_equal(names["fit"].mean("mu"), arrays.mean("mu"))
    assert names["fit"].elbo == arrays.elbo


def test_the_estimator_of_the_page():
    names, said = run("estimator")
    model, X, y = names["model"], names["X"], names["y"]
    assert str(model.coef_.round(1)) == said
    assert model.result_.elbo == lb.fit(names["line"], X, y).elbo
    np.testing.assert_allclose(model.predict(X), y, atol=0.5)
    assert repr(model.set_params(random_state=3)) == "Line(random_state=3)"
