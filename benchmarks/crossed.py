"""Two large crossed factors with slopes and five scales: seconds and memory against rows.

    python -m benchmarks.crossed [--rows 10000 100000 1000000] [--limit 600] [--peers]

A process for each size: n rows of n / 10 and n / 100 levels, simulated. Printed are the seconds of
a cold fit, those of the processor, the peak of memory, and how far each scale is from the one that
made the data, in posterior sds. What is left of the smaller factor is dense up to 5,000 numbers and
beyond that solved by conjugate gradients; where both can be done, their answers are compared.
--peers: the same rows for lme4 and statsmodels, where they are installed, a point without sds of
scales, within the limit.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import verdict

SCALES = {
    "s_first": 0.7,
    "s_first_slope": 0.4,
    "s_second": 0.5,
    "s_second_slope": 0.3,
    "sigma": 1.0,
}
BOTH = 200_000  # rows, up to which both ways are taken
SECONDS, MEGABYTES = 90.0, 4000.0  # for a million rows, on two quiet cores


def crossed(x: Any, first: Any, second: Any, firsts: int, seconds: int, y: Any = None) -> None:
    import numpyro
    import numpyro.distributions as dist

    beta = numpyro.sample("beta", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
    scale = {name: numpyro.sample(name, dist.HalfNormal(1.0)) for name in SCALES}
    with numpyro.plate("firsts", firsts):
        a = numpyro.sample("a", dist.Normal(0.0, scale["s_first"]))
        a_slope = numpyro.sample("a_slope", dist.Normal(0.0, scale["s_first_slope"]))
    with numpyro.plate("seconds", seconds):
        b = numpyro.sample("b", dist.Normal(0.0, scale["s_second"]))
        b_slope = numpyro.sample("b_slope", dist.Normal(0.0, scale["s_second_slope"]))
    mean = beta[0] + a[first] + b[second] + (beta[1] + a_slope[first] + b_slope[second]) * x
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(mean, scale["sigma"]), obs=y)


def simulated(count: int) -> dict[str, Any]:
    """Rows of the program above."""
    rng = np.random.default_rng(0)
    many, few = count // 10, count // 100
    data: dict[str, Any] = {"first": rng.integers(0, many, count)}
    data |= {"second": rng.integers(0, few, count), "x": rng.normal(size=count)}
    a, a_slope, b, b_slope = (
        scale * rng.normal(size=size)
        for scale, size in zip(SCALES.values(), (many, many, few, few), strict=False)
    )
    first, second = data["first"], data["second"]
    mean = 1.0 + a[first] + b[second] + (-0.5 + a_slope[first] + b_slope[second]) * data["x"]
    y = mean + SCALES["sigma"] * rng.normal(size=count)
    return data | {"firsts": many, "seconds": few, "y": y}


def work(count: int) -> None:
    """One size."""
    import lowerbound.names as lb
    from lowerbound.family.sparse import elimination

    data = simulated(count)

    def fitted() -> tuple[Any, float, float]:
        began = time.perf_counter(), time.process_time()
        fit = lb.fit(crossed, **data, method=lb.Integrated(), progress=False)
        moments = {name: (float(fit.mean(name)), float(fit.sd(name))) for name in SCALES}
        used = time.perf_counter() - began[0], time.process_time() - began[1]
        return (fit, moments), *used

    (fit, moments), seconds, processor = fitted()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(
        f"{count:,} rows: {seconds:.1f} s, {processor:.1f} s of the processor, {peak:,.0f} MB; "
        f"{1e6 * processor / count:.0f} microseconds a row; {fit.stop_reason}"
    )
    for name, (mean, sd) in moments.items():
        off = (mean - SCALES[name]) / sd
        print(f"  {name:16s}{mean:9.5f} +- {sd:.5f}, {off:+.1f} sds from {SCALES[name]}")
    if count >= 1_000_000:
        print(f"  seconds {verdict(seconds, SECONDS)}; megabytes {verdict(peak, MEGABYTES)}")
    if count > BOTH:
        return
    elimination.MOST_DENSE = 20
    (other, estimated), *used = fitted()
    off = max(abs(estimated[n][0] - moments[n][0]) / moments[n][1] for n in SCALES)
    ratios = [estimated[name][1] / moments[name][1] for name in SCALES]
    sds = [np.asarray(one.sd(site)) for site in ("a", "b_slope") for one in (other, fit)]
    effects = [float(np.sqrt(np.mean((sds[k] / sds[k + 1] - 1.0) ** 2))) for k in (0, 2)]
    print(
        f"  without a dense part: {used[1]:.1f} s of the processor; scales {off:.3f} sds away, "
        f"their sds times {min(ratios):.3f} to {max(ratios):.3f}; sds of effects differ by "
        f"{100 * max(effects):.1f}%; log evidence {other.elbo - fit.elbo:+.3f}, stated "
        f"{other.elbo_error:.3f}"
    )


LME4 = """
d <- read.csv("{path}")
d$first <- factor(d$first); d$second <- factor(d$second)
began <- proc.time()
library(lme4)
fit <- lmer(y ~ x + (1 | first) + (0 + x | first) + (1 | second) + (0 + x | second), d, REML=FALSE,
            control=lmerControl(calc.derivs=FALSE))
used <- proc.time() - began
cat(sprintf("%.1f s; %s\\n", used[["elapsed"]],
            paste(sprintf("%.5f", as.data.frame(VarCorr(fit))$sdcor), collapse=" ")))
"""

STATSMODELS = """
import time
import numpy as np, pandas as pd, statsmodels.api as sm
d = pd.read_csv("{path}")
began = time.perf_counter()
parts = {{"a": "0 + C(first)", "a_slope": "0 + C(first):x"}}
parts |= {{"b": "0 + C(second)", "b_slope": "0 + C(second):x"}}
groups = np.ones(len(d))
model = sm.MixedLM.from_formula("y ~ x", d, groups=groups, vc_formula=parts, use_sparse=True)
fit = model.fit()
used = time.perf_counter() - began
print(f"{{used:.1f}} s;", *np.round(np.sqrt([*fit.vcomp, fit.scale]), 5))
"""


def peers(count: int, limit: float) -> None:
    """The same rows for others, where they are installed."""
    data = simulated(count)
    scripts = {}
    if shutil.which("Rscript"):
        scripts["lme4"] = ("Rscript", LME4)
    if find_spec("statsmodels"):
        scripts["statsmodels"] = (sys.executable, STATSMODELS)
    if not scripts:
        print("  (neither Rscript nor statsmodels is installed)")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        columns = np.stack([data[name] for name in ("y", "x", "first", "second")], axis=1)
        np.savetxt(path, columns, "%.9g", ",", header="y,x,first,second", comments="")
        for name, (program, text) in scripts.items():
            script = Path(folder) / name
            script.write_text(text.format(path=path), encoding="utf-8")
            command = [program, str(script)]
            try:
                done = subprocess.run(command, timeout=limit, capture_output=True, text=True)
                found = (done.stdout.strip() or done.stderr.strip()).splitlines()[-1:]
                print(f"  {name}: {' '.join(found)}", flush=True)
            except subprocess.TimeoutExpired:
                print(f"  {name}: more than {limit:.0f} s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--limit", type=float, default=600.0, help="seconds of one fit")
    parser.add_argument("--peers", action="store_true", help="lme4 and statsmodels beside it")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work(given.worker)
        return 0
    failed = 0
    for count in given.rows:
        command = [sys.executable, "-m", "benchmarks.crossed", "--worker", str(count)]
        try:
            failed += subprocess.run(command, timeout=given.limit).returncode != 0
        except subprocess.TimeoutExpired:
            failed += 1
            print(f"{count:,} rows: more than {given.limit:.0f} s", flush=True)
        if given.peers:
            peers(count, given.limit)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
