"""lme4, glmmTMB and statsmodels on the mixed models of `benchmarks.mixed`: points, and seconds.

The R packages are Debian's (r-cran-lme4, r-cran-glmmtmb); statsmodels is PyPI's. What is not
installed is skipped, with a message. Each gives a point: the standard deviations of its effects.
"""

from __future__ import annotations

import csv
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

# The formula of each model in R's words, and the family of its rows.
FORMULAS = {
    "sleepstudy": ("y ~ days + (days | subject)", "gaussian"),
    "cbpp": ("cbind(y, size - y) ~ 0 + factor(period) + (1 | herd)", "binomial"),
    "pastes": ("y ~ 1 + (1 | batch) + (1 | cask)", "gaussian"),
    "verbagg": ("y ~ 0 + {X} + (1 | person) + (1 | item)", "binomial"),
    "insteval": ("y ~ service + (1 | student) + (1 | lecturer) + (1 | dept)", "gaussian"),
    "insteval good": ("y ~ service + (1 | student) + (1 | lecturer) + (1 | dept)", "binomial"),
    "two scales": ("y ~ 0 + factor(treatment) + (1 | first) + (1 | second)", "binomial"),
}
CALLS = {
    ("lme4", "gaussian"): "lmer({formula}, rows)",
    ("lme4", "binomial"): "glmer({formula}, rows, binomial)",
    ("glmmTMB", "gaussian"): "glmmTMB({formula}, rows)",
    ("glmmTMB", "binomial"): "glmmTMB({formula}, rows, binomial)",
}
SCRIPT = """
suppressMessages(library({package}))
rows <- read.csv("{path}")
seconds <- system.time(fit <- {call})[["elapsed"]]
found <- VarCorr(fit)
{conditional}
sds <- sapply(found, function(one) paste(signif(attr(one, "stddev"), 4), collapse = " "))
cat(sprintf("%.2f s;", seconds), paste(names(sds), sds), sep = " ")
"""


def table(data: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], str]:
    """The columns of a model's data, one value a row; those of a matrix, as a sum."""
    count = len(data["y"])
    columns: dict[str, np.ndarray] = {}
    matrix: list[str] = []
    for name, value in data.items():
        array = np.asarray(value)
        if array.shape == (count,):
            columns[name] = array
        elif array.ndim == 2 and len(array) == count:
            own = {f"{name}{number}": column for number, column in enumerate(array.T)}
            columns |= own
            matrix += own
    return columns, " + ".join(matrix)


def peers(name: str, data: Mapping[str, Any], limit: float) -> list[str]:
    """A line for each peer: its seconds and the sds that it found, or why it has none."""
    columns, matrix = table(data)
    formula, family = FORMULAS[name]
    lines = [_r(package, formula.format(X=matrix), family, columns, limit) for package in PACKAGES]
    return [*lines, _statsmodels(name, columns, limit)]


PACKAGES = ("lme4", "glmmTMB")


def _r(
    package: str, formula: str, family: str, columns: Mapping[str, np.ndarray], limit: float
) -> str:
    if shutil.which("Rscript") is None:
        return f"{package}: skipped, no Rscript is installed"
    look = f'quit(status = !requireNamespace("{package}", quietly = TRUE))'
    if subprocess.run(["Rscript", "-e", look], capture_output=True).returncode:
        return f"{package}: skipped, R has no package of this name"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*(array.tolist() for array in columns.values()), strict=True))
        call = CALLS[package, family].format(formula=formula)
        conditional = "found <- found$cond" if package == "glmmTMB" else ""
        script = SCRIPT.format(package=package, path=path, call=call, conditional=conditional)
        try:
            done = subprocess.run(
                ["Rscript", "-e", script], capture_output=True, text=True, timeout=limit
            )
        except subprocess.TimeoutExpired:
            return f"{package}: more than {limit:.0f} s"
    if done.returncode:
        return f"{package}: failed, {done.stderr.strip().splitlines()[-1]}"
    return f"{package}: {done.stdout.strip()}"


def _statsmodels(name: str, columns: Mapping[str, np.ndarray], limit: float) -> str:
    """Its linear models have one grouping; crossed ones are variance components of one group."""
    try:
        import pandas as pd
        import statsmodels.formula.api as smf
    except ImportError as error:
        return f"statsmodels: skipped, {error.name} is not installed"
    groupings = {"sleepstudy": ("y ~ days", "subject", "~days", None)}
    groupings["pastes"] = ("y ~ 1", "batch", "1", {"cask": "0 + C(cask)"})
    if name not in groupings:
        return "statsmodels: skipped, it has no such model, or none that ends"
    formula, group, slopes, components = groupings[name]
    rows = pd.DataFrame(columns)
    began = time.perf_counter()
    fit = smf.mixedlm(formula, rows, groups=group, re_formula=slopes, vc_formula=components).fit()
    seconds = time.perf_counter() - began
    sds = np.sqrt(np.r_[np.diag(fit.cov_re), fit.vcomp, fit.scale])
    return f"statsmodels: {seconds:.2f} s; sds {' '.join(f'{sd:.4g}' for sd in sds)}"
