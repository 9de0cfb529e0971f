"""`lb.fit`, automatic, on simulated data of some sixty models that nothing was tuned to.

Errors are in units of the sd of a reference: NumPyro's NUTS, run once by `--reference` and kept in
the folder `--cache`. The score is the larger of the RMS error of the means and the RMS of
log(sd / reference sd). Every model has a process of its own and a limit of seconds.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.posteriordb import GROSS, WITHIN, one_line
from benchmarks.posteriordb_peers import lowerbound, mean_and_sd
from benchmarks.stress_models import load, programs

CHAINS, WARMUP, DRAWS = 4, 1500, 1500
CACHE = Path.home() / ".cache" / "lowerbound-stress"
MIXED = 1.02  # R-hat up to which a reference counts


@dataclass(frozen=True)
class Row:
    """One model: the rung that took it, the errors, the seconds, and why it failed if it did."""

    model: str
    route: str = ""
    converged: bool = False
    cold: float = math.nan
    cold_cpu: float = math.nan
    warm: float = math.nan
    recompiled: int = 0
    mean_max: float = math.nan
    mean_rms: float = math.nan
    sd_rms: float = math.nan
    worst: str = ""
    rhat: float = math.nan
    warned: tuple[str, ...] = ()
    ladder: tuple[str, ...] = ()
    reason: str = ""

    @property
    def score(self) -> float:
        """The larger RMS; infinite where there is none."""
        score = float(np.maximum(self.mean_rms, self.sd_rms))
        return score if math.isfinite(score) else math.inf

    @property
    def judged(self) -> bool:
        """Whether there is a reference whose chains agree."""
        return self.rhat <= MIXED

    @property
    def gross(self) -> bool:
        """Whether the fit failed: an exception, a NaN, or means that are an sd away."""
        wrong = not math.isfinite(self.score) or self.mean_rms > GROSS
        return bool(self.reason) or (self.judged and wrong)

    def __str__(self) -> str:
        text = f"{self.model:28s} {self.route[:30]:30s} {'yes' if self.converged else 'no':4s}"
        seconds = (self.cold, self.cold_cpu, self.warm)
        numbers = (*seconds, self.mean_rms, self.mean_max, self.sd_rms, self.score)
        text += "".join(f"{x:8.3f}" for x in numbers) + f" {self.recompiled:3d}"
        if not self.judged:
            lacking = "no reference" if math.isnan(self.rhat) else f"its R-hat is {self.rhat:.2f}"
            text += f"  not judged: {lacking}"
        return f"{text}  {self.reason or self.worst}" + "".join(f"; {w}"[:80] for w in self.warned)


HEADING = (
    f"{'model':28s} {'rung':30s} {'conv':4s}"
    + "".join(f"{h:>8s}" for h in ("cold", "cpu", "warm", "mean", "max", "sd", "score"))
    + " new  worst"
)


def run_nuts(pipe: Any, name: str, file: str) -> None:
    """Write the reference of a model: names, means, sds, R-hats of all sites and deterministics."""
    import jax
    import numpyro
    from numpyro.diagnostics import split_gelman_rubin
    from numpyro.infer import MCMC, NUTS

    numpyro.enable_x64()
    program = load(name)
    kernel = NUTS(program.model, target_accept_prob=0.9)
    sampler = MCMC(
        kernel,
        num_warmup=WARMUP,
        num_samples=DRAWS,
        num_chains=CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    began = time.perf_counter()
    sampler.run(jax.random.PRNGKey(0), **program.data, extra_fields=("diverging",))
    draws = {n: np.asarray(d) for n, d in sampler.get_samples(group_by_chain=True).items()}
    rhat = {n: np.asarray(split_gelman_rubin(d)) for n, d in draws.items()}
    moments = mean_and_sd({n: d.reshape(-1, *d.shape[2:]) for n, d in draws.items()})
    names = [name for name, _ in labelled({n: m for n, (m, _) in moments.items()})]
    mean, sd, rhats = (
        np.array([number for _, number in labelled(arrays)])
        for arrays in (
            {n: m for n, (m, _) in moments.items()},
            {n: s for n, (_, s) in moments.items()},
            rhat,
        )
    )
    free = sd > 0  # a corner of a Cholesky factor is no number to be estimated
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        file, names=np.array(names)[free], mean=mean[free], sd=sd[free], rhat=rhats[free]
    )
    diverging = int(np.sum(sampler.get_extra_fields()["diverging"]))
    seconds = time.perf_counter() - began
    pipe.send({"seconds": seconds, "rhat": float(rhats[free].max()), "diverging": diverging})


def run_fit(pipe: Any, name: str, file: str) -> None:
    """Send what a cold fit, its comparison and a warm fit give, each as soon as it is known."""
    import jax
    import jax.monitoring

    compiled: list[str] = []

    def listen(event: str, _: float, **__: object) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    program, stored = load(name), dict(np.load(file)) if Path(file).is_file() else {}
    jax.block_until_ready(jax.numpy.zeros(1) + 1)  # the backend's own start is no part of a fit
    fit = lowerbound(SimpleNamespace(model=program.model, data=program.data))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            began, used = time.perf_counter(), time.process_time()
            moments = fit(0)
            spent = time.perf_counter() - began, time.process_time() - used
            pipe.send(dict(zip(("cold", "cold_cpu"), spent, strict=True)))
            made = moments.args[0]
            rungs = tuple(map(str, made.plan.ladder))
            taken = next((r[3:] for r in rungs if r.startswith("->")), made.method)
            pipe.send({"route": taken, "ladder": rungs, "converged": bool(made.converged)})
            pipe.send({"warned": tuple({one_line(w.message): None for w in caught})})
            if stored:
                pipe.send(compared(stored, moments))
            compiled.clear()
            began = time.perf_counter()
            fit(0)
            pipe.send({"warm": time.perf_counter() - began, "recompiled": len(compiled)})
        except Exception as error:
            pipe.send({"reason": one_line(error)})


def compared(stored: dict[str, Any], moments: Callable[[set[str]], Any]) -> dict[str, Any]:
    """Errors over all names of a reference, and the names where they are worst."""
    names = [str(n) for n in stored["names"]]
    found = moments({n.partition("[")[0] for n in names})
    means, sds = (dict(labelled({s: pair[i] for s, pair in found.items()})) for i in (0, 1))
    if lost := [n for n in names if n not in means]:
        raise LookupError(f"expected {', '.join(lost[:5])} in the fit, found {', '.join(found)}")
    mean, sd = np.array([means[n] for n in names]), np.array([sds[n] for n in names])
    offset = (mean - stored["mean"]) / stored["sd"]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(sd / stored["sd"])
    far, wide = (int(np.argmax(np.nan_to_num(abs(x), nan=np.inf))) for x in (offset, ratio))
    return {
        "mean_max": float(abs(offset).max()),
        "mean_rms": float(np.sqrt(np.mean(offset**2))),
        "sd_rms": float(np.sqrt(np.mean(ratio**2))),
        "rhat": float(stored["rhat"].max()),
        "worst": f"mean of {names[far]} {offset[far]:+.2f}, "
        f"sd of {names[wide]} x{np.exp(ratio[wide]):.2f}",
    }


def labelled(arrays: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every number of some sites by its name, "beta[2,1]", counted from 0."""
    for site, array in arrays.items():
        for index in np.ndindex(np.shape(array)):
            yield site + (f"[{','.join(map(str, index))}]" if index else ""), array[index]


def in_process(
    work: Callable[..., None], name: str, file: Path, limit: float
) -> tuple[dict[str, Any], str]:
    """What the work of a process sent within its limit, and why it ended early if it did."""
    context = multiprocessing.get_context("spawn")
    pipe, end = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(end, name, str(file)), daemon=True)
    process.start()
    end.close()
    found: dict[str, Any] = {}
    deadline, why = time.monotonic() + limit, ""
    while True:
        if not pipe.poll(max(deadline - time.monotonic(), 0.0)):
            why = f"no end within {limit:g} s"
            break
        try:
            found |= pipe.recv()
        except EOFError:
            break
    process.join(0.0 if why else None)
    if why:
        process.kill()
        process.join()
    elif process.exitcode:
        why = f"the process ended with status {process.exitcode}"
    return found, why


def summary(rows: Sequence[Row]) -> str:
    """Counts over all models, and the names behind the counts that matter."""
    judged = [r for r in rows if r.judged]
    crashes = [r.model for r in rows if r.reason]
    gross = [r.model for r in rows if r.gross]
    near = [r.model for r in judged if r.score <= WITHIN]
    median = float(np.median([r.score for r in judged])) if judged else math.nan
    seconds = [r.cold for r in rows if math.isfinite(r.cold)]
    lines = [
        f"{len(rows)} models, {len(judged)} with a reference to judge them by",
        f"of these: median score {median:.3f}; score <= {WITHIN:g}: {len(near)}",
        f"gross failures {len(gross)}: {', '.join(gross)}",
        f"crashes and runs past the limit {len(crashes)}: {', '.join(crashes)}",
    ]
    if seconds:
        lines.append(f"cold seconds: median {np.median(seconds):.1f}, most {max(seconds):.1f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stress", description=__doc__)
    parser.add_argument("--models", help="names with commas between; all of them by default")
    parser.add_argument("--reference", action="store_true", help="run NUTS where none is kept")
    parser.add_argument("--cache", type=Path, default=CACHE, help="default: %(default)s")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for a model")
    parser.add_argument("--explain", action="store_true", help="print every rung of the ladders")
    options = parser.parse_args()
    known = programs()
    names = options.models.split(",") if options.models else list(known)
    if unknown := sorted(set(names) - set(known)):
        parser.error(f"no model {', '.join(unknown)}; expected some of {', '.join(known)}")
    if options.reference:
        for name in names:
            file = options.cache / f"{name}.npz"
            if not file.is_file():
                found, why = in_process(run_nuts, name, file, options.limit)
                print(f"{name:28s} {why or found}", flush=True)
        return
    print(HEADING)
    rows: list[Row] = []
    for name in names:
        found, why = in_process(run_fit, name, options.cache / f"{name}.npz", options.limit)
        rows.append(Row(name, **({"reason": why} if why else {}) | found))
        print(rows[-1], *(rows[-1].ladder if options.explain else ()), sep="\n    ", flush=True)
    print(f"\n{summary(rows)}")


if __name__ == "__main__":
    main()
