"""The benchmark of programs: a script and a notebook, unedited, in processes of their own."""

import argparse
import json
import math
import textwrap

import numpy as np
import pandas as pd
import pytest

from benchmarks.programs import made
from benchmarks.programs.found import of_numpyro, plain, programs
from benchmarks.programs.options import variants
from benchmarks.programs.rows import Row, summary
from benchmarks.programs.watch import Limits, rows_of

SCRIPT = """
    import argparse
    import jax, jax.numpy as jnp, numpy as np, numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal

    def one(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    def other(y):
        raise RuntimeError("a program's own fault")

    def main(model):
        y = np.random.default_rng(0).normal(3.0, 1.0, 20)
        mcmc = MCMC(NUTS(model), num_warmup=100, num_samples=100, num_chains=2)
        mcmc.run(jax.random.key(0), y)
        mcmc.run(jax.random.key(1), y)  # the same model and data: one row
        draws = mcmc.get_samples()["mu"]
        assert draws.shape == (200,) and abs(draws.mean() - y.mean()) < 0.3
        assert mcmc.get_extra_fields()["diverging"].shape == (200,)
        svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(0.1), Trace_ELBO())
        svi.run(jax.random.key(2), 100_000, y[:10])  # other data: a second row
        raise ValueError("after the last model")

    if __name__ == "__main__":
        assert numpyro.__version__.startswith("0.1")
        parser = argparse.ArgumentParser()
        parser.add_argument("--model", default="one", help='one of "one", "other"')
        main(globals()[parser.parse_args().model])
"""
CELLS = [
    "!pip install numpyro\n%matplotlib inline\nimport numpyro, numpyro.distributions as dist",
    "import pandas as pd\ntable = pd.read_csv('https://a.example/b/lynx.csv', index_col=0)",
    "def model(y):\n    rate = numpyro.sample('rate', dist.Gamma(1.0, 0.01))\n"
    "    numpyro.sample('y', dist.Poisson(rate).expand([len(y)]).to_event(1), obs=y)",
    "import missing_package",
    "import jax\nfrom numpyro.infer.util import initialize_model\n"
    "initialize_model(jax.random.key(0), model, model_args=(table['value'].values[:5],))",
]


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "examples").mkdir()
    (tmp_path / "notebooks" / "source").mkdir(parents=True)
    (tmp_path / "examples" / "script.py").write_text(textwrap.dedent(SCRIPT))
    (tmp_path / "examples" / "module.py").write_text("import numpyro\n")
    cells = [{"cell_type": "code", "source": c.splitlines(keepends=True)} for c in CELLS]
    cells.insert(1, {"cell_type": "markdown", "source": ["# a title"]})
    notebook = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4})
    (tmp_path / "notebooks" / "source" / "book.ipynb").write_text(notebook)
    return tmp_path


def test_a_tree_holds_scripts_and_notebooks_but_not_modules(tree):
    assert [p.name for p in of_numpyro(tree)] == ["examples/script.py", "notebooks/book.ipynb"]
    assert [p.name for p in of_numpyro(tree, "book")] == ["notebooks/book.ipynb"]
    assert len(list(programs(tree))) == 2
    with pytest.raises(SystemExit, match="Expected NumPyro's folders"):
        next(of_numpyro(tree / "examples"))


@pytest.mark.slow
def test_programs_are_fitted_as_they_are_one_row_a_model(tree, capfd):
    script, book = of_numpyro(tree)
    others = []
    rows = list(rows_of(script, Limits(), ["nuts", "explain"], tree / "logs", others.append))
    assert [other.label for other in others] == ["examples/script.py --model other"]
    rows += rows_of(others[0], Limits(), [], tree / "logs", others.append)
    assert len(others) == 1
    assert [row.outcome for row in rows] == ["result", "result", "not run"]
    first, second, varied = rows
    assert (first.model, first.through, first.ordinal) == ("one", "MCMC.run", 0)
    assert (second.through, second.ordinal) == ("SVI.run", 1)
    assert first.judged
    assert first.score < 0.2
    assert first.seconds > 0
    assert first.nuts > 0
    assert "mu" in first.plan
    assert first.rung
    assert varied.program == "examples/script.py --model other"
    own = "the program itself raises RuntimeError: a program's own fault; then RuntimeError"
    assert varied.reason.startswith(own)
    assert "then stopped: ValueError: after the last model" in capfd.readouterr().out
    (row,) = rows_of(book, Limits(), [], tree / "logs")
    assert (row.model, row.through) == ("model", "util.initialize_model")
    assert row.outcome == "result"
    assert np.isnan(row.nuts)


SLOW = """
    import pathlib, time
    import jax, numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    def model():
        if not pathlib.Path("slept").exists():
            pathlib.Path("slept").touch()
            time.sleep(100)
        numpyro.sample("z", dist.Normal(0.0, 1.0))

    mcmc = MCMC(NUTS(model), num_warmup=100, num_samples=7)
    mcmc.run(jax.random.key(0))
    raise ValueError(f"after {len(mcmc.get_samples()['z'])} draws of the prior")
"""


def test_a_fit_past_its_limit_is_a_row_and_the_program_goes_on(tmp_path, capfd):
    (tmp_path / "slow.py").write_text(textwrap.dedent(SLOW))
    (script,) = programs(tmp_path)
    (row,) = rows_of(script, Limits(fit=2.0), [], tmp_path / "logs")
    assert row.outcome == "time-out"
    assert row.reason == "time-out: no end of fit within 2 s"
    assert "slow.py" in row.where
    expected = "slow.py then stopped: ValueError: after 7 draws of the prior"
    assert expected in capfd.readouterr().out


@pytest.mark.parametrize("name", sorted(made.MAKERS))
def test_every_made_file_has_content(name):
    assert len(made.MAKERS[name]()) > 100


def test_addresses_give_made_files_or_an_error_that_names_them():
    table = pd.read_csv(made.urlopen("https://a.example/b/lynx.csv?raw=true"), index_col=0)
    assert list(table.columns) == ["time", "value"]
    assert len(table) == 114
    with pytest.raises(OSError, match=r"no file is made for https://a\.example/c\.csv"):
        made.urlopen("https://a.example/c.csv")


def test_lines_for_ipython_do_nothing_and_other_cells_stay():
    assert plain("x = 5 % 3\n") == "x = 5 % 3\n"
    assert plain("%%time\nif x:\n    !ls") == "pass  # %%time\nif x:\n    pass  # !ls"


def test_variants_are_values_of_the_model_and_flags_that_change_it():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="a", choices=["a", "b"])
    parser.add_argument("--unroll-loop", action="store_true")
    parser.add_argument("--x64", action="store_true")
    parser.add_argument("--device", choices=["cpu", "gpu"])
    assert list(variants(parser)) == [["--model", "b"], ["--unroll-loop"]]


def test_the_summary_compares_costs_with_what_was_expected():
    costs = [(1.0, 2.9, 50, 190), (1.0, 3.1, 50, 700), (6.0, 1.9, 900, 310), (math.nan, 1.0, 1, 1)]
    rows = [
        Row("a", i, "m", "", "result", cpu=c, expected=e, megabytes=mb, expected_mb=expected)
        for i, (e, c, expected, mb) in enumerate(costs)
    ]
    assert (
        "within a factor of 3 of what was expected, of 3 rows: 1 by processor seconds, "
        "2 by megabytes (those below 200 count as 200)"
    ) in summary(rows)


def test_the_summary_counts_outcomes_and_lists_what_is_wrong():
    times = {"a": (1.0, 4.0, 1.0, 0.02), "b": (3.0, 4.0, 1.0, 0.5), "c": (2.0, 1.0, 1.5, 9.0)}
    rows = [
        Row(name, 0, "m", "", "result", seconds=s, nuts=nuts, rhat=rhat, mean_rms=mean, sd_rms=0.01)
        for name, (s, nuts, rhat, mean) in times.items()
    ]
    rows.append(Row("d", 0, "m", outcome="hang", reason="hang: fit used no processor for 60 s"))
    text = summary(rows)
    assert "4 rows: 3 result, 1 hang" in text
    assert "median 2.00, most 3.0" in text
    assert "median 0.750" in text
    assert "score <= 0.1: 1 of 2 rows" in text
    assert "b:m" in text
    assert "d:m" in text
    assert "a:m" not in text
    assert "c:m" not in text
