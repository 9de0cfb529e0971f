"""Mixed models as different people write them: `lb.fit`, automatic, beside NumPyro's NUTS.

    python -m benchmarks.hierarchies [--only a,b | --kinds counts,apart] [--cache FOLDER]

A line a model: the rung that took it, the score (the larger of the RMS error of means in sds of
NUTS and the RMS of log(sd / NUTS's), medians and widths between quantiles where tails have no
sd), the verdict, and processor seconds of both, compilation included. NUTS has 2 chains of 1000
draws after 1000, in float64, and four times as many where its R-hat is above 1.01 then; its seconds
are those of the first run. It is run where the folder `--cache` has no result of it. Every model
has a process of its own.
"""

from __future__ import annotations

import argparse
import math
import os
import time
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.hierarchy_models import KINDS, programs
from benchmarks.located import heavy, of_draws, of_fit
from benchmarks.posteriordb import one_line
from benchmarks.posteriordb_peers import lowerbound
from benchmarks.stress import compared, in_process, labelled

CHAINS, WARMUP, DRAWS, LONGER = 2, 1000, 1000, 4
MIXED, WELL = 1.02, 1.01  # R-hat up to which a reference counts, and is not run for longer
WRONG = 0.1  # score above which something should be said
CACHE = Path.home() / ".cache" / "lowerbound-hierarchies"


@dataclass(frozen=True)
class Row:
    """One model: the rung, the errors, the verdict, processor seconds, why it failed if it did."""

    model: str
    route: str = ""
    trust: str = ""
    seconds: float = math.nan
    nuts: float = math.nan
    mean_rms: float = math.nan
    mean_max: float = math.nan
    sd_rms: float = math.nan
    rhat: float = math.nan
    worst: str = ""
    said: tuple[str, ...] = ()
    ladder: tuple[str, ...] = ()
    reason: str = ""

    @property
    def score(self) -> float:
        """The larger RMS; infinite where there is none."""
        score = float(np.maximum(self.mean_rms, self.sd_rms))
        return score if math.isfinite(score) else math.inf

    @property
    def silent(self) -> bool:
        """Whether the fit says nothing that would make one doubt it."""
        return self.trust == "all" and not self.said

    @property
    def marks(self) -> str:
        """What is wrong with it, in a word each."""
        wrong = self.rhat <= MIXED and self.score > WRONG
        marks = ["failed"] if self.reason else []
        marks += ["silent"] if wrong and self.silent else []
        marks += ["alarm"] if self.rhat <= MIXED and not wrong and not self.silent else []
        marks += ["slow"] if self.seconds > self.nuts else []
        return ",".join(marks)

    def __str__(self) -> str:
        numbers = (self.mean_rms, self.mean_max, self.sd_rms, self.score)
        text = f"{self.model:21s} {self.route[:16]:16s} {self.trust:8s}"
        text += "".join(f"{x:7.3f}" for x in numbers) + f"{self.seconds:8.1f}{self.nuts:8.1f}"
        doubt = f"  R-hat of NUTS {self.rhat:.2f}" if not self.rhat <= MIXED else ""
        return f"{text} {self.marks:12s}{doubt} {self.reason or self.worst}"


HEADING = f"{'model':21s} {'rung':16s} {'trust':8s}" + "".join(
    f"{h:>7s}" for h in ("mean", "max", "sd", "score")
)
HEADING += f"{'cpu':>8s}{'NUTS':>8s} {'marks':12s} worst"


def run_nuts(pipe: Any, name: str, file: str) -> None:
    """Write the reference of a model: names, means, sds, R-hats, and processor seconds."""
    import jax
    import numpyro
    from numpyro.diagnostics import split_gelman_rubin
    from numpyro.infer import MCMC, NUTS

    numpyro.enable_x64()
    program = programs()[name]
    jax.block_until_ready(jax.numpy.zeros(1) + 1)
    seconds = math.nan
    for times in (1, LONGER):
        sampler = MCMC(
            NUTS(program.model, target_accept_prob=0.8 if times == 1 else 0.95),
            num_warmup=WARMUP * times,
            num_samples=DRAWS * times,
            num_chains=CHAINS,
            chain_method="sequential",
            progress_bar=False,
        )
        began = time.process_time()
        sampler.run(jax.random.PRNGKey(0), **program.data)
        draws = {n: np.asarray(d) for n, d in sampler.get_samples(group_by_chain=True).items()}
        seconds = time.process_time() - began if times == 1 else seconds
        flat = {n: d.reshape(-1, *d.shape[2:]) for n, d in draws.items()}
        by_quantiles = heavy(flat)
        moments = of_draws(flat, by_quantiles)
        mean, sd, rhat = (
            dict(labelled(arrays))
            for arrays in (
                {n: m for n, (m, _) in moments.items()},
                {n: s for n, (_, s) in moments.items()},
                {n: np.asarray(split_gelman_rubin(d)) for n, d in draws.items()},
            )
        )
        # A corner of a Cholesky factor is no number.
        free = [n for n in mean if sd[n] > 1e-9 * (1 + abs(mean[n]))]
        worst = max(rhat[n] for n in free)
        if worst <= WELL:
            break
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    parts = {k: np.array([v[n] for n in free]) for k, v in (("mean", mean), ("sd", sd))}
    np.savez_compressed(
        file,
        names=np.array(free),
        rhat=np.array([rhat[n] for n in free]),
        seconds=np.array(seconds),
        heavy=np.array(by_quantiles, str),
        **parts,
    )


def run_fit(pipe: Any, name: str, file: str) -> None:
    """Send what a cold fit and its comparison give, each as soon as it is known."""
    import jax

    program, stored = programs()[name], dict(np.load(file)) if Path(file).is_file() else {}
    jax.block_until_ready(jax.numpy.zeros(1) + 1)  # the backend's own start is no part of a fit
    fit = lowerbound(SimpleNamespace(model=program.model, data=program.data))
    if stored:
        pipe.send({"nuts": float(stored["seconds"])})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        began = time.process_time()
        try:
            moments = fit(0)
            made = moments.args[0]
            trust = made.verdict.trust
            pipe.send({"seconds": time.process_time() - began, "trust": trust})
            rungs = tuple(map(str, made.plan.ladder))
            taken = next((r[3:] for r in rungs if r.startswith("->")), made.method)
            said = tuple({one_line(w.message): None for w in caught})
            notes = (f"verdict: {made.verdict}", *(f"note: {n}" for n in made.notes))
            pipe.send({"route": taken, "ladder": (*rungs, *notes), "said": said})
            if stored:
                by_quantiles = tuple(map(str, stored["heavy"]))
                pipe.send(compared(stored, partial(of_fit, made, by_quantiles)))
        except Exception as error:
            pipe.send({"reason": one_line(error)})


def summary(rows: list[Row]) -> str:
    """Counts over all models, and the names behind the counts that matter."""
    judged = [r for r in rows if r.rhat <= MIXED]
    near = [r for r in judged if r.score <= WRONG]
    lines = [f"{len(rows)} models, {len(judged)} judged; score <= {WRONG:g}: {len(near)}"]
    if judged:
        lines[0] += f"; median {np.median([r.score for r in judged]):.3f}"
    for mark, what in (
        ("failed", "failed"),
        ("silent", "wrong and silent"),
        ("alarm", "right and doubted"),
        ("slow", "slower than NUTS"),
    ):
        names = [r.model for r in rows if mark in r.marks.split(",")]
        lines.append(f"{what} {len(names)}: {', '.join(names)}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help="names with commas between; all of them by default")
    parser.add_argument("--kinds", default=",".join(KINDS), help="default: %(default)s")
    parser.add_argument("--cache", type=Path, default=CACHE, help="default: %(default)s")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for a model")
    parser.add_argument("--explain", action="store_true", help="print every rung, and what is said")
    options = parser.parse_args()
    known = programs(tuple(options.kinds.split(",")))
    names = options.only.split(",") if options.only else list(known)
    if unknown := sorted(set(names) - set(known)):
        parser.error(f"no model {', '.join(unknown)}; expected some of {', '.join(known)}")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    print(HEADING)
    rows: list[Row] = []
    for name in names:
        file = options.cache / f"{name}.npz"
        if not file.is_file():
            in_process(run_nuts, name, file, 4 * options.limit)
        found, why = in_process(run_fit, name, file, options.limit)
        rows.append(Row(name, **({"reason": why} if why else {}) | found))
        more = (*rows[-1].said, *rows[-1].ladder) if options.explain else ()
        print(rows[-1], *more, sep="\n    ", flush=True)
    print(f"\n{summary(rows)}")


if __name__ == "__main__":
    main()
