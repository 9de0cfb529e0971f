"""Accuracy and time of `lb.fit` and its peers on posteriordb, against reference posteriors.

Errors are in units of the reference sd. The score of a run is the larger of the RMS error of the
means and the RMS of log(sd / reference sd). Cold seconds include tracing, deriving and compiling;
warm ones are those of a second fit. Every model and method has a process of its own.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.posteriordb_peers import GUIDES, METHODS, RATES
from benchmarks.timing import verdict

VARIABLE = "LOWERBOUND_POSTERIORDB"
WITHIN, GROSS = 0.1, 1.0  # a score that counts as accurate; an error of the means as failure
LEGEND = """
score: the median over models of medians over seeds; near: models with that median <= 0.1; always:
models with every seed <= 0.1; gross: runs with an exception, a NaN or means an sd away; silent: of
these, those that neither raised nor warned; family, share: the median score and the share <= 0.1
when each family of data counts once; then median seconds, and the median ratios to NUTS.
"""
SECONDS = ("cold", "cold_cpu", "warm", "warm_cpu")
HEADINGS = ("mean_max", "mean_rms", "sd_rms", "score", *SECONDS, "xla")


@dataclass(frozen=True)
class Row:
    """One run: its errors, its seconds, and why it failed if it did."""

    model: str
    method: str
    seed: int
    mean_max: float = math.nan
    mean_rms: float = math.nan
    sd_rms: float = math.nan
    cold: float = math.nan
    cold_cpu: float = math.nan
    xla: float = math.nan  # compiling, within the cold run, summed over threads
    programs: int = 0
    warm: float = math.nan
    warm_cpu: float = math.nan
    recompiled: int = 0
    missing: tuple[str, ...] = ()
    warned: tuple[str, ...] = ()
    reason: str = ""

    @property
    def score(self) -> float:
        """The larger RMS; infinite where there is none."""
        score = float(np.maximum(self.mean_rms, self.sd_rms))
        return score if math.isfinite(score) else math.inf

    @property
    def gross(self) -> bool:
        """Whether the run failed: an exception, a NaN, or means that are an sd away."""
        return bool(self.reason) or not math.isfinite(self.score) or self.mean_rms > GROSS

    def __str__(self) -> str:
        text = f"{self.model[:42]:42s} {self.method:12s} {self.seed:4d}"
        if math.isnan(self.mean_rms):
            return f"{text}   failed: {self.reason or 'NaN'}"
        text += "".join(f"{getattr(self, heading):9.3f}" for heading in HEADINGS)
        text += f"   {self.reason or '; '.join(self.warned)[:100]}"
        return text + (f" not in the model: {', '.join(self.missing)}" if self.missing else "")


def errors(reference: Any, moments: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
    """Errors over the reference's names ("beta[2,1]") that a fit has, and the names it lacks."""
    flat = {}
    for site, (mean, sd) in moments.items():
        for index in np.ndindex(np.shape(mean)):
            label = f"[{','.join(str(i + 1) for i in index)}]" if index else ""
            flat[site + label] = mean[index], sd[index]
    known = np.array([name in flat for name in reference.names])
    if not known.any():
        raise ValueError(f"expected some of {reference.names}, found {list(flat)} in the fit")
    mean, sd = np.array([flat[name] for name in reference.names if name in flat]).T
    offsets = np.abs(mean - reference.mean[known]) / reference.sd[known]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.log(sd / reference.sd[known])
    return {
        "mean_max": float(offsets.max()),
        "mean_rms": float(np.sqrt(np.mean(offsets**2))),
        "sd_rms": float(np.sqrt(np.mean(ratios**2))),
        "missing": tuple(name for name in reference.names if name not in flat),
    }


Load = Callable[[str], Any]  # the port of a name: its model, its data, and a reference


def port_of(folder: str, name: str) -> Any:
    """A program of posteriordb, from the folder of its ports."""
    sys.path.insert(0, folder)
    return importlib.import_module("ports").load(name)


def work(pipe: Any, load: Load, name: str, method: str, seeds: Sequence[int]) -> None:
    """Send a row for every seed."""
    import jax.monitoring
    import numpyro

    jax.config.update("jax_enable_compilation_cache", False)
    numpyro.enable_x64(method != "lowerbound")  # which chooses its precision by itself
    compiled: list[float] = []

    def listen(event: str, duration: float, **_: object) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(duration)

    def clocked(fit: Any, seed: int) -> tuple[Any, float, float]:
        compiled.clear()
        began = time.perf_counter(), time.process_time()
        found = fit(seed)
        return found, time.perf_counter() - began[0], time.process_time() - began[1]

    jax.monitoring.register_event_duration_secs_listener(listen)
    port = load(name)
    sites = {name.partition("[")[0] for name in port.ref.names}
    jax.block_until_ready(jax.numpy.zeros(1) + 1)  # the backend's own start is no part of a fit
    warnings.simplefilter("ignore")
    for seed in seeds:
        found: dict[str, Any] = {}
        try:
            fit = METHODS[method](port)
            jax.clear_caches()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                moments, found["cold"], found["cold_cpu"] = clocked(fit, seed)
            found["warned"] = tuple({one_line(w.message): None for w in caught})
            found["xla"], found["programs"] = sum(compiled), len(compiled)
            found |= errors(port.ref, moments(sites))
            _, found["warm"], found["warm_cpu"] = clocked(fit, seed)
            found["recompiled"] = len(compiled)
        except Exception as error:
            found["reason"] = one_line(error)
        pipe.send(Row(name, method, seed, **found))


def one_line(error: Any) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:160]


def rows_of(load: Load, name: str, method: str, seeds: range, limit: float) -> Iterator[Row]:
    """The rows of one model and method; a run that crashes or passes the limit is a row as well."""
    context = multiprocessing.get_context("spawn")
    pending = list(seeds)
    while pending:
        pipe, end = context.Pipe(duplex=False)
        arguments = (end, load, name, method, pending)
        process = context.Process(target=work, args=arguments, daemon=True)
        process.start()
        end.close()
        allowed, ended = limit * (1 + len(RATES) * (method in GUIDES)), ""  # all rates come first
        while pending and not ended:
            try:
                row = pipe.recv() if pipe.poll(allowed) else None
                ended = "" if row else f"no answer within {allowed:g} s"
            except EOFError:
                process.join()
                row, ended = None, f"the process ended with status {process.exitcode}"
            seed, allowed = pending.pop(0), limit
            yield row or Row(name, method, seed, reason=ended)
        process.kill()
        process.join()


def table(rows: Sequence[Row], data: Mapping[str, str]) -> pd.DataFrame:
    """Every run, with its score and the family of its data: the first word of their name."""
    runs = pd.DataFrame([asdict(r) | {"score": r.score, "gross": r.gross} for r in rows])
    return runs.assign(family=runs.model.map(data).str.extract("([^_0-9]+)", expand=False))


def summary(runs: pd.DataFrame) -> pd.DataFrame:
    """One line a method, as the legend says."""
    runs = runs.assign(silent=runs.gross & (runs.reason == "") & (runs.warned.str.len() == 0))
    keys = ["method", "family", "model"]
    models = runs.groupby(keys, sort=False)[["score", *SECONDS]].median()
    near, always = models.score <= WITHIN, runs.groupby(keys).score.max() <= WITHIN
    methods = runs.groupby("method", sort=False)
    lines = pd.DataFrame({"score": models.score.groupby("method", sort=False).median()})
    lines["near"], lines["always"] = (x.groupby("method").sum() for x in (near, always))
    lines["models"], lines["runs"] = near.groupby("method").size(), methods.size()
    lines[["gross", "silent"]] = methods[["gross", "silent"]].sum()
    lines["family"] = models.score.groupby(keys[:2]).median().groupby("method").median()
    lines["share"] = near.groupby(keys[:2]).mean().groupby("method").mean()
    lines[list(SECONDS)] = models[list(SECONDS)].groupby("method").median()
    if "nuts" in lines.index:
        for name in SECONDS:
            wide = models[name].unstack("method")
            lines[f"{name}/"] = wide.div(wide["nuts"], axis=0).median()
    return lines


def targets(line: pd.Series) -> Iterator[str]:
    """What is wanted of `lb.fit`, and whether it is met."""
    yield f"gross failures: {verdict(line.gross, 0)}"
    yield f"median score: {verdict(line.score, 0.045)}"
    yield f"share of models <= 0.1: {verdict(line.near / line.models, 32 / 39, at_most=False)}"
    if "cold/" in line:
        yield f"cold seconds / NUTS's, where both ended: {verdict(line['cold/'], 0.5)}"
    yield f"warm seconds: {verdict(line.warm, 0.5)}"


def found_folder(named: str | None) -> Path:
    """The folder of the data: as named, by the environment, or beside the project."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data" / "posteriordb"
    folder = Path(named or os.environ.get(VARIABLE) or beside)
    if not (folder / "index.json").is_file():
        raise SystemExit(
            f"Expected a folder with posteriordb's index.json and ports; found none at {folder}.\n"
            f"Name the folder by --folder or by the environment variable {VARIABLE}."
        )
    return folder.resolve()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.posteriordb", description=__doc__)
    parser.add_argument("--models", help="names with commas between; all of them by default")
    parser.add_argument("--methods", default=",".join(METHODS), help="default: %(default)s")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each model and method")
    parser.add_argument("--folder", help="where the data are")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds, cold plus warm")
    parser.add_argument("--json", type=Path, help="a file for all rows")
    options = parser.parse_args()
    folder = found_folder(options.folder)
    data = {e["name"]: e["data"] for e in json.loads((folder / "index.json").read_text())}
    models = options.models.split(",") if options.models else sorted(data)
    methods = options.methods.split(",")
    if "pathfinder" in methods and not importlib.util.find_spec("blackjax"):
        print("blackjax is not installed: pathfinder is left out")
        methods.remove("pathfinder")
    for what, names, known in (("model", models, data), ("method", methods, METHODS)):
        if unknown := sorted(set(names) - set(known)):
            parser.error(f"no {what} {', '.join(unknown)}; expected some of {', '.join(known)}")
    print(f"{'model':42s} {'method':12s} seed" + "".join(f"{h:>9s}" for h in HEADINGS))
    rows: list[Row] = []
    load = partial(port_of, str(folder))
    for name in models:
        for method in methods:
            for row in rows_of(load, name, method, range(options.seeds), options.limit):
                print(row, flush=True)
                rows.append(row)
        runs = table(rows, data)
        if options.json:  # after each model: a benchmark that is stopped keeps its rows
            runs.to_json(options.json, orient="records", indent=1)
    lines = summary(runs)
    print(LEGEND, lines.to_string(float_format="%.3f"), sep="\n")
    if "lowerbound" in lines.index:
        print("\nlowerbound", *targets(lines.loc["lowerbound"]), sep="\n  ")


if __name__ == "__main__":
    main()
