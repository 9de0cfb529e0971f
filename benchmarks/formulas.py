"""Fixed effects of formulas beside those of lme4, in the same run, on lme4's data sets.

    python -m benchmarks.formulas [--only sleepstudy,cbpp] [--limit 900]

One process a data set. Priors are wide: a hundred times the default scales for coefficients, and
half-normal ones as wide for scales. Printed are, for every fixed effect, the posterior mean and sd,
lme4's estimate and standard error, and their difference in these. lme4 is Debian's (r-cran-lme4):
lmer by REML, glmer by Laplace's approximation, and by quadrature with 25 points where glmer has it
(one scalar effect).
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

from benchmarks.mixed import SHARED

# Ours, R's, the family, and whether glmer has quadrature for it.
CASES = {
    "sleepstudy": ("y ~ days + (days | subject)", "y ~ days + (days | subject)", "gaussian", False),
    "cbpp": (
        "p(y, size) ~ C(period) + (1 | herd)",
        "cbind(y, size - y) ~ factor(period) + (1 | herd)",
        "binomial",
        True,
    ),
    "verbagg": (
        "y ~ 0 + {X} + (1 | person) + (1 | item)",
        "y ~ 0 + {X} + (1 | person) + (1 | item)",
        "bernoulli",
        False,
    ),
    "insteval": (
        "y ~ service + (1 | student) + (1 | lecturer) + (1 | dept)",
        "y ~ service + (1 | student) + (1 | lecturer) + (1 | dept)",
        "gaussian",
        False,
    ),
}
SCRIPT = """
suppressMessages(library(lme4))
rows <- read.csv("{path}")
seconds <- system.time(fit <- {call})[["elapsed"]]
found <- coef(summary(fit))
cat(sprintf("%.2f\\n", seconds))
cat(sprintf("%.10g %.10g\\n", found[, 1], found[, 2]), sep = "")
"""


def loaded(name: str) -> tuple[dict[str, np.ndarray], str]:
    """The rows of a data set, and the columns of its matrix as a sum."""
    stored = np.load(SHARED / f"{name}.npz")
    count = len(stored["y"])
    columns: dict[str, np.ndarray] = {}
    for key in stored.files:
        array = np.asarray(stored[key])
        if array.shape == (count,):
            columns[key] = array.astype(np.int64 if array.dtype.kind in "iu" else float)
        elif array.ndim == 2:
            columns |= {
                f"{key}{number}": array[:, number] * 1.0 for number in range(array.shape[1])
            }
    return columns, " + ".join(c for c in columns if c.startswith("X"))


def lme4(
    call: str, columns: dict[str, np.ndarray], limit: float
) -> tuple[float, np.ndarray, np.ndarray] | str:
    """Seconds, estimates and standard errors of the fixed effects; or why there are none."""
    import pandas as pd

    if shutil.which("Rscript") is None:
        return "no Rscript is installed"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        pd.DataFrame(columns).to_csv(path, index=False)
        script = SCRIPT.format(path=path, call=call)
        try:
            done = subprocess.run(
                ["Rscript", "-e", script], capture_output=True, text=True, timeout=limit
            )
        except subprocess.TimeoutExpired:
            return f"more than {limit:.0f} s"
    if done.returncode:
        return done.stderr.strip().splitlines()[-1]
    first, *lines = done.stdout.split("\n")
    found = np.array([[float(v) for v in line.split()] for line in lines if line.strip()])
    return float(first), found[:, 0], found[:, 1]


def wide(columns: dict[str, np.ndarray], family: str) -> dict[str, str]:
    """Priors a hundred times wider than the default."""
    spread = float(np.std(columns["y"])) if family == "gaussian" else 1.0
    scale = 250.0 * spread
    return {
        "intercept": f"Normal(0, {10 * scale:.0f})",
        "b": f"Normal(0, {scale:.0f})",
        "sd": f"HalfNormal({scale:.0f})",
        "sigma": f"HalfNormal({scale:.0f})",
        "cor": 1.0,
    }  # fmt: skip


def work(name: str, limit: float) -> None:
    """One data set."""
    import lowerbound.names as lb

    columns, matrix = loaded(name)
    ours, theirs, family, quadrature = CASES[name]
    priors = wide(columns, family)
    text = ours.format(X=matrix)
    if family != "gaussian":
        priors.pop("sigma")
    if text.startswith("y ~ 0"):
        priors.pop("intercept")
    if "days |" not in text:
        priors.pop("cor")
    f = lb.formula(text, columns, family=family, priors=priors)
    began, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit = lb.fit(*f, progress=False)
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    found = f.coefficients(fit)
    function = "lmer" if family == "gaussian" else "glmer"
    extra = "" if family == "gaussian" else ", binomial"
    call = f"{function}({theirs.format(X=matrix)}, rows{extra})"
    print(
        f"{name}: {f.design.count:,} rows, {fit.method}, {took:.1f} s ({cpu:.1f} CPU), "
        f"trust {fit.verdict.trust}; {fit.stop_reason}"
    )
    for warning in caught:
        print(f"  warned: {str(warning.message).splitlines()[0]}")
    rows = [("lme4", call)]
    if quadrature:
        rows.append(("lme4, 25 points", call[:-1] + ", nAGQ = 25)"))
    for label, command in rows:
        peer = lme4(command, columns, limit)
        if isinstance(peer, str):
            print(f"  {label}: skipped, {peer}")
            continue
        seconds, estimates, errors = peer
        offs = (found["mean"].to_numpy() - estimates) / errors
        print(f"  {label} ({seconds:.1f} s): largest difference {np.abs(offs).max():.3f} se")
        for effect, (mean, sd), estimate, error, off in zip(
            found.index, found.to_numpy(), estimates, errors, offs, strict=True
        ):
            print(
                f"    {effect:14s} {mean:10.4f} +- {sd:8.4f}   lme4 {estimate:10.4f} +- "
                f"{error:8.4f}   {off:+.3f} se",
                flush=True,
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default=",".join(CASES), help="names, with commas between them")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds of one data set")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work(given.worker, given.limit)
        return 0
    failed = 0
    for name in given.only.split(","):
        command = [sys.executable, "-m", "benchmarks.formulas", "--worker", name]
        command += ["--limit", str(given.limit)]
        failed += subprocess.run(command).returncode != 0
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
