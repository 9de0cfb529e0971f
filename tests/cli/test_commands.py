"""The command line: what each command writes and prints, and what it says of bad input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import lowerbound as lb
from lowerbound.cli import main
from lowerbound.cli.data_files import arguments_of, read_table
from lowerbound.cli.demonstration import write_demonstration
from lowerbound.cli.model_files import load_model, method_named, value_of
from lowerbound.errors import CommandError, UnknownColumnError

MODEL = """import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist


def model(y, scale=2.0):
    mu = numpyro.sample("mu", dist.Normal(0.0, scale))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def groups(x, g, y=None):
    b = numpyro.sample("b", dist.Normal(jnp.zeros(x.shape[1]), 1.0).to_event(1))
    a = numpyro.sample("a", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(x @ b + a[g], 1.0), obs=y)
"""
TABLE = pd.DataFrame(
    {
        "y": [1.0, 2.0, 0.5, 1.5, 3.0, 2.2],
        "u": range(6),
        "v": [1, 0, 0, 1, 1, 0],
        "g": list("abab") * 1 + ["a", "b"],
    }
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(MODEL)
    TABLE.to_csv("rows.csv", index=False)
    return tmp_path


def left(place: Path) -> set[str]:
    return {path.name for path in place.iterdir()} - {"__pycache__"}


def test_a_fit_is_written_whole_and_can_be_used_again(place: Path, capsys) -> None:
    assert main(["fit", "model.py:model", "rows.csv", "--arg", "scale=5.0", "--seed", "3"]) == 0
    assert {p.name for p in Path("run").iterdir()} == {
        "fit.lb", "report.html", "run.json", "summary.csv",
    }  # fmt: skip
    assert left(place) == {"model.py", "rows.csv", "run"}
    names: dict = {}
    exec(MODEL, names)
    expected = lb.fit(names["model"], TABLE.y.to_numpy(), scale=5.0, seed=3)
    summary = pd.read_csv("run/summary.csv", index_col=0)
    assert summary.loc["mu", "mean"] == pytest.approx(float(expected.mean("mu")))
    printed = capsys.readouterr()
    assert printed.out.startswith("Fit of model by CAVI(): ELBO")
    assert printed.err == ""
    record = json.loads(Path("run/run.json").read_text())
    assert record["subject"] == "model.py:model"
    assert record["arg"] == {"scale": "5.0"}
    # check and report read it, with the model named again.
    assert main(["check", "run", "model.py:model", "--seconds", "5"]) == 0
    assert capsys.readouterr().out.startswith("Trust means and intervals")
    Path("run/report.html").unlink()
    assert main(["report", "run", "model.py:model", "--quiet"]) == 0
    assert "<h1>Fit of model</h1>" in Path("run/report.html").read_text("utf-8")
    assert capsys.readouterr().out == ""


def test_explain_prints_the_plan_and_writes_nothing(place: Path, capsys) -> None:
    assert main(["explain", "model.py:model", "rows.csv"]) == 0
    assert capsys.readouterr().out.startswith("CAVI for model: observed y; rows = plate 'rows (6)'")
    assert left(place) == {"model.py", "rows.csv"}


def test_a_formula_is_explained_fitted_and_checked(place: Path, capsys) -> None:
    words = ["--formula", "y ~ u", "rows.csv"]
    assert main(["explain", *words, "--method", "laplace"]) == 0
    assert 'numpyro.sample("b_u"' in capsys.readouterr().out
    assert main(["fit", *words, "--method", "laplace", "--out", "made", "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert Path("made/model.py").read_text("utf-8") == lb.formula("y ~ u", TABLE).source
    assert "b_u" in pd.read_csv("made/summary.csv", index_col=0).index
    assert main(["report", "made", "--out", "page.html"]) == 0
    assert left(place) == {"model.py", "rows.csv", "made", "page.html"}


def test_an_interrupted_run_goes_on_to_the_same_bits(
    place: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lowerbound.store.checkpoint import Keeper

    words = ["fit", "model.py:model", "rows.csv", "--method", "SVI(batch_size=2, steps=40)"]
    words += ["--checkpoint", "10", "--quiet"]
    assert main([*words, "--out", "whole"]) == 0
    write, calls = Keeper.write, []

    def killed(self, *args, **kwargs):
        write(self, *args, **kwargs)
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Keeper, "write", killed)
    assert main(words) == 130
    monkeypatch.setattr(Keeper, "write", write)
    assert capsys.readouterr().err == (
        "lowerbound: go on with: lowerbound resume run model.py:model\nlowerbound: interrupted\n"
    )
    assert left(place) == {"model.py", "rows.csv", "whole", "run.unfinished"}
    assert main(words) == 2
    assert "It holds a run that has not ended: lowerbound resume run" in capsys.readouterr().err
    assert main(["resume", "run", "model.py:model", "--quiet"]) == 0
    assert left(place) == {"model.py", "rows.csv", "whole", "run"}
    whole, resumed = (pd.read_csv(f"{one}/summary.csv", index_col=0) for one in ("whole", "run"))
    pd.testing.assert_frame_equal(whole, resumed)


DEMO = [
    "fit", "demo/mixture.py:mixture", "demo/points.csv", "--column", "x=a,b", "--arg", "K=5",
    "--out", "demo/run",
]  # fmt: skip


def test_the_demonstration_is_files_and_a_command(place: Path, capsys) -> None:
    assert write_demonstration(Path("demo"), 60) == DEMO
    explained = ["explain", *DEMO[1:-2], "--method", "cavi"]
    assert main(explained) == 0
    assert "Normal-Gamma(mu, tau)" in capsys.readouterr().out


@pytest.mark.slow
def test_the_demonstration_runs(place: Path, capsys) -> None:
    assert main(["demo"]) == 0
    assert {p.name for p in Path("demo").iterdir()} >= {"mixture.py", "points.csv", "run"}
    assert capsys.readouterr().out.splitlines()[0] == f"lowerbound {' '.join(DEMO)}"
    assert main(["demo"]) == 2


def test_columns_become_arguments(place: Path) -> None:
    model = load_model("model.py:groups")
    found = arguments_of(model, read_table("rows.csv"), {}, {"x": "u,v"}, ["g"])
    np.testing.assert_array_equal(found["x"], TABLE[["u", "v"]])
    np.testing.assert_array_equal(found["g"], [0, 1, 0, 1, 0, 1])
    np.testing.assert_array_equal(found["y"], TABLE.y)
    with pytest.raises(UnknownColumnError):
        arguments_of(model, TABLE, {}, {"x": "u,w"}, ["g"])


def test_tables_of_every_ending(place: Path) -> None:
    TABLE.to_parquet("rows.parquet")
    TABLE.to_csv("rows.tsv", sep="\t", index=False)
    TABLE.to_json("rows.json")
    np.savez(
        "rows.npz", **{name: TABLE[name].to_numpy(str if name == "g" else None) for name in TABLE}
    )
    for ending in ("csv", "tsv", "parquet", "json", "npz"):
        found = read_table(f"rows.{ending}")
        np.testing.assert_allclose(found.y, TABLE.y)
        assert list(found.g) == list(TABLE.g)


def test_methods_and_values_are_read_but_not_run() -> None:
    assert method_named("auto") == "auto"
    assert method_named("CAVI(restarts=10)") == lb.CAVI(restarts=10)
    assert method_named("lb.SVI(batch_size=2)") == lb.SVI(batch_size=2)
    assert [value_of(text) for text in ("5", "[1, 2]", "True", "plain")] == [
        5,
        [1, 2],
        True,
        "plain",
    ]
    for text in ("__import__('os')", "CAVI(10)", "NUTS()", "CAVI(restarts=open('x'))", "cavi("):
        with pytest.raises(CommandError):
            method_named(text)
    with pytest.raises(CommandError):
        method_named("CAVI(restart=10)")


LINES = [
    (
        ["fit", "absent.py:model", "rows.csv"],
        "There is no file absent.py. Expected Python that defines the model, as model.py:model.",
    ),
    (
        ["fit", "broken.py:model", "rows.csv"],
        "broken.py does not import: NameError: name 'undefined' is not defined (line 2). Expected "
        "Python that defines the model.",
    ),
    (
        ["fit", "wrong.py:model", "rows.csv"],
        "wrong.py does not import: SyntaxError: invalid syntax (wrong.py, line 1). "
        "Expected Python that defines the model.",
    ),
    (
        ["fit", "model.py:other", "rows.csv"],
        "model.py has no function 'other'; it defines 'model', 'groups'. Expected model.py:name.",
    ),
    (
        ["fit", "model.py:model", "absent.csv"],
        "There is no file absent.csv. Expected a table: .csv, .tsv, .parquet, .npz or .json.",
    ),
    (
        ["fit", "model.py:model", "empty.csv"],
        "empty.csv has no rows. Expected a table with a row of names and rows of values.",
    ),
    (
        ["fit", "model.py:model", "names.csv"],
        "names.csv has no rows. Expected a table with a row of names and rows of values.",
    ),
    (
        ["fit", "model.py:model", "model.py"],
        "model.py cannot be read as a table: its ending is '.py'. Expected a file .csv, .tsv, "
        ".parquet, .npz or .json.",
    ),
    (
        ["fit", "model.py:model", "text.csv"],
        "Column 'y' holds text, 'n.a.' in row 2, and argument 'y' takes numbers. Expected numbers. "
        "Correct the entry, or number the values of the column with --codes y.",
    ),
    (
        ["fit", "model.py:groups", "rows.csv", "--codes", "g"],
        "Argument 'x' of groups is no column of the data, which has 'y', 'u', 'v', 'g'. Expected "
        "--column x=NAME (or NAME,NAME for a matrix), or --arg x=VALUE.",
    ),
    (
        ["fit", "model.py:model", "rows.csv", "--column", "y=w"],
        "Argument 'y' names 'w', which is no column of the data. Expected names among 'y', 'u', "
        "'v', 'g'.",
    ),
    (
        ["fit", "model.py:model", "rows.csv", "--arg", "K=5"],
        "--arg is for 'K', and model has no such argument. Expected names among y, scale.",
    ),
    (
        ["fit", "model.py:model", "rows.csv", "--arg", "scale"],
        "--arg got 'scale'. Expected NAME=VALUE.",
    ),
    (
        ["fit", "rows.csv"],
        "The command has 1 names, rows.csv. Expected a model and its data, model.py:model "
        'data.csv, or --formula "y ~ x + (1 | g)" data.csv.',
    ),
    (
        ["fit", "model.py:model", "rows.csv", "--formula", "y ~ u"],
        "The command has --formula, and model.py:model rows.csv. Expected a model and its data, "
        'model.py:model data.csv, or --formula "y ~ x + (1 | g)" data.csv.',
    ),
    (
        ["fit", "rows.csv", "--formula", "y ~ u", "--arg", "K=5"],
        "--arg got 'K=5'. Expected a model, not a formula.",
    ),
    (
        ["fit", "rows.csv", "--formula", "y ~ u + (1 | g"],
        "The formula 'y ~ u + (1 | g' cannot be read: the \"(\" at character 9 is never closed. "
        'Expected one like "y ~ x + s(z) + (1 + x | g)".',
    ),
    (
        ["fit", "rows.csv", "--formula", "y ~ uu"],
        "The formula 'y ~ uu' names 'uu', which is no column of the data. Expected names among "
        "'y', 'u', 'v', 'g'. Did you mean 'u'?",
    ),
    (
        ["fit", "model.py:model", "rows.csv", "--out", "taken"],
        "The folder taken is there already. Expected a new one. Choose another with --out, or "
        "replace it with --force.",
    ),
    (
        ["check", "taken"],
        "taken holds no run. Expected a folder that `lowerbound fit --out` has made.",
    ),
    (
        ["resume", "taken", "model.py:model"],
        "taken.unfinished holds no run to go on with. Expected a folder that `lowerbound fit "
        "--out` has made.",
    ),
]


@pytest.mark.parametrize(("words", "said"), LINES, ids=[" ".join(words) for words, _ in LINES])
def test_bad_input_is_one_line_and_leaves_nothing(
    place: Path, capsys, words: list[str], said: str
) -> None:
    Path("broken.py").write_text("import numpyro\nundefined\n")
    Path("wrong.py").write_text("def model(:\n")
    Path("empty.csv").write_text("")
    Path("names.csv").write_text("y,x\n")
    TABLE.assign(y=["1", "2", "n.a.", "1", "2", "3"]).to_csv("text.csv", index=False)
    Path("taken").mkdir()
    before = left(place)
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.err == f"lowerbound: error: {said}\n"
    assert printed.out == ""
    assert left(place) == before


def test_a_run_of_other_data_or_an_unnamed_model_is_refused(place: Path, capsys) -> None:
    assert main(["fit", "model.py:model", "rows.csv", "--quiet"]) == 0
    assert main(["check", "run"]) == 2
    assert capsys.readouterr().err == (
        "lowerbound: error: The run in run is of model.py:model, which a record cannot have "
        "executed. Expected its name: lowerbound check run model.py:model.\n"
    )
    TABLE.head(5).to_csv("rows.csv", index=False)
    assert main(["check", "run", "model.py:model"]) == 2
    assert " is not what the run in run was made from." in capsys.readouterr().err
    assert main(["fit", "model.py:model", "rows.csv", "--quiet"]) == 2
    assert main(["fit", "model.py:model", "rows.csv", "--quiet", "--force"]) == 0
    assert left(place) == {"model.py", "rows.csv", "run"}


def test_options_without_meaning_are_one_line_too(place: Path, capsys) -> None:
    assert main(["fitt"]) == 2
    assert main(["fit", "model.py:model", "rows.csv", "--seed", "x"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[1] == (
        "lowerbound fit: error: argument --seed: invalid int value: 'x' (see lowerbound fit --help)"
    )


def test_what_the_library_did_not_expect_is_named_and_traced_on_demand(place: Path, capsys) -> None:
    Path("odd.py").write_text("def model(y):\n    raise RuntimeError('no luck')\n")
    assert main(["fit", "odd.py:model", "rows.csv"]) in (1, 2)
    assert "no luck" in capsys.readouterr().err
    assert main(["fit", "odd.py:model", "rows.csv", "--debug"]) in (1, 2)
    assert "Traceback (most recent call last)" in capsys.readouterr().err
    assert left(place) == {"model.py", "odd.py", "rows.csv"}


@pytest.mark.parametrize("command", ["", "explain", "fit", "check", "report", "resume", "demo"])
def test_help_has_examples(command: str, capsys) -> None:
    assert main([*([command] if command else []), "--help"]) == 0
    assert "lowerbound " in capsys.readouterr().out.partition("example")[2]


def test_the_script_is_declared() -> None:
    import tomllib

    root = Path(__file__).parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["scripts"] == {"lowerbound": "lowerbound.cli:main"}
