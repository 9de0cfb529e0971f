"""Accuracy and seconds of `lb.fit` and its peers, as a picture and a table of the documentation.

    python -m benchmarks.accuracy --rows accuracy.json [--methods lowerbound,nuts] [--draw docs]

39 posteriors of posteriordb and the mixed models of lme4's data, one run each: what is in the file
of rows already is not run again, so that a run that was stopped goes on. `--draw FOLDER` makes
`images/accuracy.svg` of the rows, and fills the tables of `accuracy.md` there, if there is one.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import mixed, posteriordb
from benchmarks.posteriordb_peers import METHODS

MIXED = ("sleepstudy", "cbpp", "pastes", "verbagg")  # those that all of the peers can do
TITLES = {
    "lowerbound": "lowerbound, automatic",
    "nuts": "NumPyro's NUTS",
    "normal": "NumPyro's AutoNormal",
    "multivariate": "NumPyro's AutoMultivariateNormal",
    "laplace": "NumPyro's AutoLaplaceApproximation",
    "pathfinder": "BlackJAX's Pathfinder",
}
WORST = 10.0  # the score at which failures are drawn
NEAR = posteriordb.WITHIN


def gathered(path: Path, methods: Sequence[str], limit: float) -> None:
    """Run what is not in the file yet, and add it row by row."""
    folder = posteriordb.found_folder(None)
    names = sorted(e["name"] for e in json.loads((folder / "index.json").read_text()))
    known = json.loads(path.read_text()) if path.is_file() else []
    done = {(row["set"], row["model"], row["method"]) for row in known}
    loads = {"posteriordb": partial(posteriordb.port_of, str(folder)), "mixed": mixed.port_of}
    for which, models in (("mixed", MIXED), ("posteriordb", names)):
        for name in models:
            for method in methods:
                if (which, name, method) in done:
                    continue
                for row in posteriordb.rows_of(loads[which], name, method, range(1), limit):
                    print(row, flush=True)
                    known.append({"set": which, **asdict(row), "score": row.score})
                path.write_text(json.dumps(known, indent=1))


def scores(rows: pd.DataFrame) -> pd.Series:
    """Scores, of failures too: a run without an answer has the worst."""
    found = pd.to_numeric(rows["score"], errors="coerce").replace(math.inf, WORST)
    return found.fillna(WORST).clip(upper=WORST)


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """A line a method, of the models that all methods were run on."""
    rows = rows.assign(score=scores(rows))
    wide = rows.pivot(index="model", columns="method", values="score").dropna()
    cpu = rows.pivot(index="model", columns="method", values="cold_cpu").loc[wide.index]
    again = rows.pivot(index="model", columns="method", values="warm_cpu").loc[wide.index]
    order = [method for method in TITLES if method in wide.columns]
    return pd.DataFrame(
        {
            "method": [TITLES[method] for method in order],
            "median score": [wide[method].median() for method in order],
            "worst": [wide[method].max() for method in order],
            "within 0.1": [f"{(wide[m] <= NEAR).sum()} of {len(wide)}" for m in order],
            "first fit, s": [cpu[method].median() for method in order],
            "second fit, s": [again[method].median() for method in order],
        }
    )


def as_markdown(lines: pd.DataFrame) -> str:
    """A table, of numbers to two digits."""

    def said(value: Any) -> str:
        if isinstance(value, str):
            return value
        return ">= 10" if value >= WORST else f"{value:.2g}" if value < 10 else f"{value:.0f}"

    head = "| " + " | ".join(lines.columns) + " |\n|" + "---|" * len(lines.columns) + "\n"
    body = (" | ".join(said(v) for v in row) for row in lines.itertuples(index=False))
    return head + "\n".join(f"| {line} |" for line in body)


def drawn(rows: pd.DataFrame, path: Path) -> None:
    """A panel a method: score against processor seconds of a first fit, over all the others."""
    import matplotlib.pyplot as plt

    rows = rows.assign(score=np.maximum(scores(rows), 1e-3))
    rows = rows[np.isfinite(rows["cold_cpu"])]
    order = [method for method in TITLES if (rows["method"] == method).any()]
    columns = min(3, len(order))
    figure, axes = plt.subplots(
        math.ceil(len(order) / columns), columns, figsize=(9.0, 5.4), sharex=True, sharey=True,
        squeeze=False, layout="constrained",
    )  # fmt: skip
    for axis, method in zip(axes.flat, order, strict=False):
        own = rows[rows["method"] == method]
        axis.scatter(rows["cold_cpu"], rows["score"], s=6, color="#c8c8c8", linewidths=0)
        for which, colour, mark in (("posteriordb", "#0072b2", "o"), ("mixed", "#d55e00", "s")):
            some = own[own["set"] == which]
            axis.scatter(
                some["cold_cpu"], some["score"], s=18, color=colour, marker=mark, label=which
            )
        axis.axhline(NEAR, color="#444444", linewidth=0.8, linestyle=":")
        axis.axvline(own["cold_cpu"].median(), color="#0072b2", linewidth=0.8, alpha=0.5)
        axis.set(xscale="log", yscale="log", title=TITLES[method])
        axis.title.set_fontsize(9)
    for axis in axes.flat[len(order) :]:
        axis.set_visible(False)
    axes.flat[0].legend(fontsize=8, frameon=False, loc="upper right")
    figure.supxlabel("processor seconds of a first fit", fontsize=9)
    figure.supylabel("score: error in posterior sds", fontsize=9)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def written(rows: pd.DataFrame, folder: Path) -> None:
    """The picture, and the tables between the marks of the page, if there is one."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    drawn(rows, folder / "images" / "accuracy.svg")
    page = folder / "accuracy.md"
    if not page.is_file():
        return
    text = page.read_text()
    for which in ("posteriordb", "mixed"):
        lines = as_markdown(summary(rows[rows["set"] == which]))
        marks = f"<!-- {which} -->", f"<!-- end of {which} -->"
        text = re.sub(
            f"{marks[0]}.*{marks[1]}", f"{marks[0]}\n{lines}\n{marks[1]}", text, flags=re.DOTALL
        )
    page.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("--rows", type=Path, default=Path("output/accuracy.json"))
    parser.add_argument("--methods", default=",".join(METHODS), help="default: %(default)s")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds, cold plus warm")
    parser.add_argument("--draw", type=Path, help="the folder of the page: nothing is run")
    given = parser.parse_args()
    if given.draw is None:
        given.rows.parent.mkdir(parents=True, exist_ok=True)
        gathered(given.rows, given.methods.split(","), given.limit)
    rows = pd.DataFrame(json.loads(given.rows.read_text()))
    if given.draw is not None:
        written(rows, given.draw)
    for which, some in rows.groupby("set"):
        print(f"\n{which}\n\n{as_markdown(summary(some))}")


if __name__ == "__main__":
    main()
