"""The documentation points at things that exist, and its code runs."""

import re
import shlex
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.cli import main
from website.running import run, text_of

# Readers get verdicts, and are warned where a page shows a fit that is off.
pytestmark = [
    pytest.mark.judged,
    pytest.mark.filterwarnings("ignore::lowerbound.errors.TrustWarning"),
]
ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.md")])
LINK = re.compile(r"\]\(([^)#\s]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_resolve(page: Path) -> None:
    targets = [link for link in LINK.findall(page.read_text("utf-8")) if "://" not in link]
    assert [link for link in targets if not (page.parent / link).exists()] == []


def run_page(page: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Run the blocks of a page in order; what it says is printed must be. Returns its names."""
    matplotlib.use("agg")
    names: dict[str, Any] = {}
    blocks = re.findall(
        r"^```(\w*)\n(.*?)^```$",
        (ROOT / "docs" / page).read_text("utf-8"),
        re.DOTALL | re.MULTILINE,
    )
    code = [text for language, text in blocks if language == "python"]
    for number, text in enumerate(code):
        exec(compile(text, f"{page}, block {number}", "exec"), names)
    matplotlib.pyplot.close("all")
    assert len(code) > 6
    printed = capsys.readouterr().out.splitlines()
    (said,) = [text for language, text in blocks if language == ""]
    assert [line for line in said.splitlines() if line not in printed] == []
    return names


def test_the_code_of_the_first_page_runs_in_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run_page("index.md", capsys)
    # Standard errors of the means are below 0.11: off by six of them at most.
    for name in ("groups", "in_memory", "from_file", "today"):
        found = names[name].mean("mu")
        np.testing.assert_allclose(found[np.argsort(found[:, 0])], names["centres"], atol=0.6)
    assert names["resumed"].elbo == names["from_file"].elbo
    fit = names["fit"]
    assert (np.abs(fit.mean("beta") - [2.0, 0.0, -1.0]) < 4 * fit.sd("beta")).all()


def test_the_code_of_how_to_scale_runs_in_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run_page("how-to-scale.md", capsys)
    # Standard errors are about 0.015: off by thirteen of them at most.
    for fit in (names["whole"], names["today"], names["fit"], names["again"]):
        found = fit.mean("mu")[np.argsort(fit.mean("mu")[:, 0])]
        np.testing.assert_allclose(found, names["means"], atol=0.2)


def test_the_code_of_how_to_formulas_runs_in_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run_page("how-to-formulas.md", capsys)
    fit = names["fit"]
    # Level 250 and trend 10 between people, each within four posterior deviations.
    assert abs(fit.mean("intercept") - 250) < 4 * fit.sd("intercept")
    assert abs(fit.mean("b_day") - 10) < 4 * fit.sd("b_day")
    known, unknown = names["drawn"].std(axis=0)
    assert unknown > known
    assert (tmp_path / "model.py").read_text("utf-8") == names["f"].source
    assert names["less"].design.rows.dropped == 24


def test_the_commands_of_how_to_command_line_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "how-to-command-line.md").read_text("utf-8")
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    text = dict(blocks)
    Path("model.py").write_text(text["python"])
    Path("rows.csv").write_text(text["csv"])
    commands = [line for language, code in blocks if language == "sh" for line in code.splitlines()]
    assert len(commands) == 6
    for command in commands:
        words = shlex.split(command)
        assert words[0] == "lowerbound"
        assert main(words[1:]) == 0, command
    assert {p.name for p in Path("run").iterdir()} == set(
        re.findall(r"^\| `([\w.]+)` \|", page, re.MULTILINE)
    )
    assert Path("groups/model.py").exists()


def test_the_code_of_how_to_choose_runs_in_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run_page("how-to-choose.md", capsys)
    assert names["fits"].keys() == {"K=1", "K=2", "K=3"}
    assert names["found"].best_value == 3
    for comparison in (names["by_new_rows"], names["by_row"]):
        assert comparison.best == "K=3"
    # One failure in a hundred seeds.
    assert names["right"].calibrated
    wrong = {one.name: one for one in names["narrow"].quantities if one.wrong}
    assert wrong["b[0]"].ratio < 0.7


def test_the_code_of_how_to_look_runs_in_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run_page("how-to-look.md", capsys)
    # The fit is bad on purpose, as the page says.
    assert names["fit"].sd("tau") < 0.6 * names["better"].sd("tau")
    assert "<p class=advice>Do not trust the fit</p>" in names["path"].read_text("utf-8")


def test_the_code_of_how_to_series_runs_in_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run_page("how-to-series.md", capsys)
    # Within four posterior deviations of the values that simulated the data.
    for fit in (names["fit"], names["gaps"]):
        for name, true in (("walk", 0.3), ("noise", 0.6)):
            assert abs(fit.mean(name) - true) < 4 * fit.sd(name)


def test_the_code_of_how_to_any_model_runs_in_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run_page("how-to-any-model.md", capsys)
    page = (ROOT / "docs" / "how-to-any-model.md").read_text("utf-8")
    # The figures of the text are those of its code.
    for name in ("fit", "mean_field"):
        assert f"{names[name].sd('tau'):.2f}" in page
        assert f"{names[name].elbo:.2f}" in page
    ratios = names["augmented"].sd("beta") / names["binary"].sd("beta")
    assert ((ratios > 0.8) & (ratios < 0.9)).all()
    assert np.isinf(names["shrunk"].sd("scale")).all()
    # Within four posterior deviations of the values that simulated the data.
    for name, site, truth in (
        ("shrunk", "beta", [2.0, -1.0, 0.0, 0.0]),
        ("binary", "beta", [0.5, 1.0, -1.0]),
        ("rates", "beta", [0.2, 0.5, -0.5]),
        ("glmm", "beta", [0.5, 1.0, -1.0]),
        ("black_box", "mu", [-1.5, 2.0]),
        ("black_box", "sigma", [1.0, 0.7]),
    ):
        fit = names[name]
        assert fit.converged
        assert (np.abs(fit.mean(site) - truth) < 4 * fit.sd(site)).all(), name
    assert names["independent"].elbo < names["black_box"].elbo - 0.1
    assert "'weight', 'sigma' on a grid" in names["smoothed"].plan.ladder[-1]
    assert "'c' summed out" in names["summed"].plan.ladder[-1]
    assert np.corrcoef(names["summed"].mean("c"), names["x"] > 0)[0, 1] > 0.9
    assert set(names["estimated"].parameters) == {"shape", "rate"}


def test_the_code_of_how_to_trust_runs_in_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run_page("how-to-trust.md", capsys)
    assert names["good"].verdict.trust == names["trusted"].verdict.trust == "all"
    assert names["mean_field"].verdict.trust != "all"
    assert names["few"].verdict.trust != "all"
    # Some thousand effective draws of a skewed density: to 10%.
    assert abs(names["trusted"].sd("tau") / names["good"].sd("tau") - 1) < 0.25
    assert names["table"].loc["tau", "sd_ratio"] < 0.6


def test_the_code_of_how_to_estimators_runs_in_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run_page("how-to-estimators.md", capsys)
    assert len(set(names["labels"])) == 3
    np.testing.assert_allclose(np.sort(names["steps"][:, 0]), [0, 9])
    assert len(set(names["network"].labels_)) == 3
    np.testing.assert_allclose(np.sort(names["experts"].coef_[:, 0]), [-2, 1], atol=0.1)
    assert abs(names["known"] - names["new"]) > 1e-3
    assert names["draws"].shape == (100, 8)
    assert names["trust"] in ("all", "means")
    np.testing.assert_allclose(abs(names["ard"].coef_), [2, 1, 0, 0, 0, 0], atol=0.15)
    assert names["search"].best_params_ == {"gaussianmixture__n_components": 3}


def test_the_code_of_how_to_topics_runs_in_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run_page("how-to-topics.md", capsys)
    lda, test = names["lda"], names["test"]
    assert names["proportions"].shape == (test.shape[0], 10)
    np.testing.assert_allclose(names["proportions"].sum(axis=1), 1)
    # What all words' frequencies alone foretell: topics must do better, however they were found.
    shares = (names["train"].sum(axis=0) + 0.01) / (names["train"].sum() + 0.01 * test.shape[1])
    unigram = float((test @ np.log(shares)).sum() / test.sum())
    for model in (lda, names["large"], names["online"], names["mean_field"], names["learned"]):
        assert model.score(test) > unigram + 0.1


def run_short(page: str, folder: Path) -> dict[str, Any]:
    """Run a page, which prints what it says; returns its names."""
    text = text_of(ROOT / "docs" / page)
    names, printed = run(text, folder)
    assert [line for line in text.said if line not in printed] == []
    return names


def test_the_quickstart_runs(tmp_path):
    names = run_short("quickstart.md", tmp_path)
    assert names["new"].shape[1:] == (2,)
    assert names["again"].elbo == names["fit"].elbo
    assert "Trust means and intervals" in (tmp_path / "report.html").read_text("utf-8")


def test_mixed_models_by_formula_and_by_program_agree(tmp_path):
    names = run_short("how-to-mixed-models.md", tmp_path)
    # One model with two sets of priors, both wide: within half a posterior sd.
    difference = names["fit"].mean("b_extract") - names["written"].mean("b")[1]
    assert abs(difference) < 0.5 * names["written"].sd("b")[1]


@pytest.mark.slow
def test_clusters_are_found(tmp_path):
    names = run_short("how-to-clusters.md", tmp_path)
    assert names["found"].best_value == 5
    # 400 rows, five components: a mean has a standard error below 0.2.
    distances = names["fit"].mean("mu")[:, None] - names["data"]["means"]
    assert (np.linalg.norm(distances, axis=-1).min(axis=0) < 1).all()


def test_missing_values_are_filled_in(tmp_path):
    names = run_short("how-to-missing-data.md", tmp_path)
    filled, gone = names["filled"], names["gone"]
    # Within four posterior deviations of the values that simulated the data.
    assert (np.abs(filled.mean("b") - [1.0, 0.5, 1.0]) < 4 * filled.sd("b")).all()
    # Their sd given age and y is 0.33; 0.4 is more than three standard errors of its estimate off.
    off = filled.mean("lost") - names["weight"][gone]
    assert np.sqrt(np.mean(off**2)) < 0.45


def test_wider_priors_leave_wider_posteriors(tmp_path):
    names = run_short("how-to-priors.md", tmp_path)
    assert names["high"] > 10


@pytest.mark.slow
def test_models_of_others_have_the_same_answers_here(tmp_path):
    names = run_short("how-to-migrate.md", tmp_path)
    np.testing.assert_allclose(names["shares"].sum(axis=1), 1)
    assert names["fit"].sd("tau") == pytest.approx(names["same"].sd("tau"), rel=0.02)
    assert "mom_hs" in names["g"].coefficients(names["scores"]).index


def test_the_lines_on_errors_and_sharp_bits_run(tmp_path, capsys):
    run_short("errors.md", tmp_path)
    page = text_of(ROOT / "docs" / "sharp-bits.md")

    def model(x):
        m = numpyro.sample("m", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("x", dist.Normal(m, 1.0), obs=x)

    names = {"lb": lb, "np": np, "model": model, "x": np.array([1.0, np.nan, 3.0])}
    for code in page.code:
        exec(code, names)
    assert names["fit"].mean("m") == pytest.approx(4 / 3)
