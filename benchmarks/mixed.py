"""Mixed models of lme4's data sets, beside references, and beside NUTS in the same run.

    python -m benchmarks.mixed [--only cbpp,pastes] [--nuts] [--peers] [--limit 600]

One process a model. Scores are the larger of RMS (mean - reference) / sd and RMS log sd ratio over
the elements of all sites, and the same of the scales alone. `two scales` is simulated: 504
logistic rows, 7 and 6 groups, 4 treatments; its reference is NUTS, with --nuts. With --peers the
points of lme4, glmmTMB and statsmodels follow, as far as these are installed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.mixed_peers import peers

SHARED = Path(__file__).parents[2] / "shared" / "data" / "mixed"
NAMES = ("sleepstudy", "cbpp", "pastes", "verbagg", "insteval", "insteval good", "two scales")


def two_scales(treatment: Any, first: Any, second: Any, y: Any = None) -> None:
    import numpyro
    import numpyro.distributions as dist

    beta = numpyro.sample("beta", dist.Normal(0.0, 1.5).expand([4]).to_event(1))
    s_first = numpyro.sample("s_first", dist.Exponential(1.0))
    s_second = numpyro.sample("s_second", dist.Exponential(1.0))
    with numpyro.plate("firsts", 7):
        a = numpyro.sample("a", dist.Normal(0.0, s_first))
    with numpyro.plate("seconds", 6):
        b = numpyro.sample("b", dist.Normal(0.0, s_second))
    with numpyro.plate("rows", len(treatment)):
        logits = beta[treatment] + a[first] + b[second]
        numpyro.sample("y", dist.Bernoulli(logits=logits), obs=y)


def loaded(name: str) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """A program, its arguments, and the reference (mean, sd) of each site."""
    if name == "two scales":
        rng = np.random.default_rng(0)
        data = {"treatment": rng.integers(4, size=504), "first": rng.integers(7, size=504)}
        data["second"] = rng.integers(6, size=504)
        effects = rng.normal(size=4)[data["treatment"]] + 1.5 * rng.normal(size=7)[data["first"]]
        effects += 0.3 * rng.normal(size=6)[data["second"]]
        data["y"] = (rng.uniform(size=504) < 1 / (1 + np.exp(-effects))).astype(float)
        return two_scales, data, {}
    sys.path.insert(0, str(SHARED))
    import mixed_models

    if name != "insteval good":
        found: tuple[Any, dict[str, Any], dict[str, Any]] = mixed_models.load(name)
        return found
    _, data, _ = mixed_models.load("insteval")
    return _good, data | {"y": (data["y"] >= 4).astype(float)}, {}


@dataclass(frozen=True)
class Reference:
    """Names as posteriordb has them, with their means and sds."""

    names: list[str]
    mean: np.ndarray
    sd: np.ndarray


@dataclass
class Port:
    """A mixed model in the form of posteriordb's ports."""

    model: Any
    data: dict[str, Any]
    ref: Reference


def port_of(name: str) -> Port:
    """One of the models that have a reference."""
    model, data, reference = loaded(name)
    names, means, sds = list[str](), list[float](), list[float]()
    for site, (mean, sd) in reference.items():
        for index in np.ndindex(np.shape(mean)):
            if np.asarray(sd)[index] > 1e-8:  # what does not move has no error in sds
                names.append(site + (f"[{','.join(str(i + 1) for i in index)}]" if index else ""))
                means.append(float(np.asarray(mean)[index]))
                sds.append(float(np.asarray(sd)[index]))
    return Port(model, data, Reference(names, np.array(means), np.array(sds)))


def _good(
    student: Any,
    lecturer: Any,
    dept: Any,
    service: Any,
    students: int,
    lecturers: int,
    depts: int,
    y: Any = None,
) -> None:
    import numpyro
    import numpyro.distributions as dist

    beta = numpyro.sample("beta", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    s_student = numpyro.sample("s_student", dist.HalfNormal(1.0))
    s_lecturer = numpyro.sample("s_lecturer", dist.HalfNormal(1.0))
    s_dept = numpyro.sample("s_dept", dist.HalfNormal(1.0))
    with numpyro.plate("students", students):
        a = numpyro.sample("a", dist.Normal(0.0, s_student))
    with numpyro.plate("lecturers", lecturers):
        b = numpyro.sample("b", dist.Normal(0.0, s_lecturer))
    with numpyro.plate("depts", depts):
        c = numpyro.sample("c", dist.Normal(0.0, s_dept))
    with numpyro.plate("rows", len(student)):
        logits = beta[0] + beta[1] * service + a[student] + b[lecturer] + c[dept]
        numpyro.sample("y", dist.Bernoulli(logits=logits), obs=y)


def clocked(call: Any) -> tuple[Any, float, float]:
    began = time.perf_counter(), time.process_time()
    found = call()
    return found, time.perf_counter() - began[0], time.process_time() - began[1]


def nuts(model: Any, data: dict[str, Any]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Mean and sd of every site by two chains of NUTS."""
    import jax
    import numpyro
    from numpyro.infer import MCMC, NUTS

    numpyro.enable_x64()
    mcmc = MCMC(
        NUTS(model), num_warmup=1000, num_samples=2000, num_chains=2,
        chain_method="sequential", progress_bar=False,
    )  # fmt: skip
    mcmc.run(jax.random.key(0), **data)
    draws = mcmc.get_samples()
    return {n: (np.asarray(d).mean(axis=0), np.asarray(d).std(axis=0)) for n, d in draws.items()}


def errors(fit: Any, reference: dict[str, Any]) -> tuple[float, str]:
    """The score over all elements, and the scales' mean errors and sd ratios."""
    means, sds, scales = [], [], []
    for site, (mean, sd) in reference.items():
        moves = np.asarray(sd) > 1e-8
        offset = (fit.mean(site) - mean)[moves] / sd[moves]
        ratio = fit.sd(site)[moves] / sd[moves]
        means.append(np.ravel(offset))
        sds.append(np.ravel(np.log(ratio)))
        if site.startswith("s_") or site in ("tau", "sigma", "scale"):
            pairs = zip(np.ravel(offset), np.ravel(ratio), strict=True)
            scales += [f"{site} ({a:+.2f}, {b:.2f})" for a, b in pairs]
    rms = [float(np.sqrt(np.mean(np.concatenate(part) ** 2))) for part in (means, sds)]
    return max(rms), "  ".join(scales)


def work(name: str, with_nuts: bool, with_peers: bool, limit: float) -> None:
    """One row."""
    import lowerbound.names as lb

    model, data, reference = loaded(name)

    def fitted() -> Any:
        return lb.fit(model, **data, progress=False)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit, cold, cold_cpu = clocked(fitted)
    _, warm, warm_cpu = clocked(fitted)
    peer = ""
    if with_nuts and not name.startswith("insteval"):
        found, seconds, cpu = clocked(lambda: nuts(model, data))
        peer = f"NUTS {seconds:.1f} s ({cpu:.1f} CPU)"
        reference = reference or found
    score, scales = errors(fit, reference) if reference else (float("nan"), "no reference")
    warned = f"  warned: {caught[0].message}"[:100] if caught else ""
    print(
        f"{name:14s} {fit.method:20s} score {score:.3f}  cold {cold:.1f} s ({cold_cpu:.1f} CPU)  "
        f"warm {warm:.1f} s ({warm_cpu:.1f} CPU)  {peer}\n    {fit.stop_reason}{warned}\n"
        f"    {scales}",
        flush=True,
    )
    for line in peers(name, data, limit) if with_peers else ():
        print(f"    {line}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default=",".join(NAMES), help="names, with commas between them")
    parser.add_argument("--nuts", action="store_true", help="NUTS beside them")
    parser.add_argument("--peers", action="store_true", help="lme4, glmmTMB, statsmodels")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds of one model")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work(given.worker, given.nuts, given.peers, given.limit / 4)
        return 0
    failed = 0
    for name in given.only.split(","):
        command = [sys.executable, "-m", "benchmarks.mixed", "--worker", name]
        command += ["--nuts"] * given.nuts + ["--peers"] * given.peers
        command += ["--limit", str(given.limit)]
        try:
            failed += subprocess.run(command, timeout=given.limit).returncode != 0
        except subprocess.TimeoutExpired:
            failed += 1
            print(f"{name:14s} more than {given.limit:.0f} s", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
