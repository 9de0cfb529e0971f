"""Do verdicts see what is wrong? Fits with a known error, their `fit.verdict`, and what it cost.

    python -m benchmarks.verdicts [--sets posteriordb,cases,untuned,...] [--cure] [--nuts]

A fit is wrong where some mean is more than 0.25 reference sds off, or some sd by more than 25%; it
is flagged where its verdict is not "all". Automatic fits stay as they were fitted, without the
weights that their verdicts ask for (`until="fitted"`). References: posteriordb's and those of
data/mixed, NUTS of `python -m benchmarks.stress --reference` (where its chains agree), and closed
forms. Models of posteriordb are fitted by the ladder, and by methods that are too simple for most
of them. Constants of the verdict were set on the half of the models whose names have an even sum of
letters; the table counts both halves; none was set on the cases that are "untuned". One process a
model, and one for all cases.

With --cure, fits that are not trusted are corrected as `until="trusted"` does: scores are the
larger of the RMS error of the means, in reference sds, and the RMS log ratio of sds. With --nuts,
NumPyro's NUTS runs once for every model from its own start (4 chains, 1000 + 1000). Seconds are CPU
seconds of the process, compilation included.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.known_posteriors.case import Case, Truth
from benchmarks.posteriordb import found_folder, one_line
from benchmarks.stress import CACHE, MIXED, labelled

MEAN, SD = 0.25, math.log(1.25)
SETS = ("posteriordb", "stress", "cases", "untuned", "mixed")
WITHIN = 0.1  # the score of an accurate answer
Reference = Mapping[str, tuple[float, float]]  # "beta[2,1]", from 0 -> mean and sd


def methods() -> dict[str, Any]:
    import lowerbound.names as lb

    return {
        "auto": "auto",
        "diagonal": lb.Gaussian(rank="diagonal"),
        "Laplace": lb.Laplace(),
        "CAVI": lb.CAVI(),
    }


@lru_cache
def _cases() -> dict[str, Case]:
    from benchmarks.verdict_cases import cases, untuned

    return cases() | untuned()


def loaded(kind: str, name: str, cache: Path) -> Iterator[tuple[str, Any, Any, Any, Any]]:
    """Method's name, method, program, data and reference of every fit of one model.

    The reference may be a case, which knows it once it has seen the fit.
    """
    if kind in ("cases", "untuned"):
        case = _cases()[name]
        yield "", case.method, case.model, case.data, case
        return
    if kind == "mixed":
        from benchmarks.mixed import loaded as mixed

        model, data, found = mixed(name)
        yield "auto", "auto", model, data, flat(found)
        return
    if kind == "posteriordb":
        import sys

        sys.path.insert(0, str(found_folder(None)))
        import ports

        port = ports.load(name)
        names = [_from_zero(n) for n in port.ref.names]
        truth = dict(zip(names, zip(port.ref.mean, port.ref.sd, strict=True), strict=True))
        for label, method in methods().items():
            yield label, method, port.model, port.data, truth
        return
    from benchmarks.stress_models import load

    program, stored = load(name), np.load(cache / f"{name}.npz")
    if float(stored["rhat"].max()) > MIXED:
        return
    names = [str(n) for n in stored["names"]]
    truth = dict(zip(names, zip(stored["mean"], stored["sd"], strict=True), strict=True))
    for label in ("auto", "diagonal", "CAVI"):
        yield label, methods()[label], program.model, program.data, truth


def _from_zero(name: str) -> str:
    site, _, index = name.partition("[")
    if not index:
        return name
    return f"{site}[{','.join(str(int(i) - 1) for i in index[:-1].split(','))}]"


def errors(fit: Any, reference: Reference) -> dict[str, Any]:
    """The largest errors, and where they are."""
    sites = {n.partition("[")[0] for n in reference}
    found = {s: (fit.mean(s), fit.sd(s)) for s in sites}
    means, sds = (dict(labelled({s: pair[i] for s, pair in found.items()})) for i in (0, 1))
    names = [n for n, (_, sd) in reference.items() if n in means and sd > 1e-8]
    offset = np.array([(means[n] - reference[n][0]) / reference[n][1] for n in names])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(np.array([sds[n] / reference[n][1] for n in names]))
    far, wide = (int(np.argmax(np.nan_to_num(abs(x), nan=np.inf))) for x in (offset, ratio))
    return {
        "mean": float(offset[far]), "mean_of": names[far],
        "sd": float(ratio[wide]), "sd_of": names[wide], "numbers": len(names),
        "score": float(max(np.sqrt(np.mean(offset**2)), np.sqrt(np.mean(ratio**2)))),
    }  # fmt: skip


def nuts_seconds(model: Any, data: Any) -> float:
    """CPU seconds of NumPyro's NUTS from its own start; infinite where it cannot run."""
    import jax
    from numpyro.infer import MCMC, NUTS

    sampler = MCMC(NUTS(model), num_warmup=1000, num_samples=1000, num_chains=4,
                   chain_method="vectorized", progress_bar=False)  # fmt: skip
    began = time.process_time()
    try:
        with jax.enable_x64(True):
            sampler.run(jax.random.key(0), **data)
            jax.block_until_ready(sampler.get_samples())
    except Exception:  # discrete sites that it cannot sum out, say
        return math.inf
    return time.process_time() - began


def cured(fit: Any, again: Callable[[], Any], reference: Reference) -> dict[str, Any]:
    """What the verdict's own cure makes of a fit, and its CPU seconds; `again` fits all rows."""
    import lowerbound.names as lb
    from lowerbound.trust.corrections.cures import trusted

    began, better = time.process_time(), fit
    if fit.verdict.trust != "all" and fit.whole:
        better = trusted(fit)
    elif fit.verdict.cure.startswith("lb.correct"):
        found = lb.correct(fit, "psis" if "psis" in fit.verdict.cure else "nuts")
        better = found if found.verdict.trust == "all" else fit
    elif fit.verdict.cure:
        better = again()
    seconds = time.process_time() - began
    found = errors(better, reference)
    return {"cured": found["score"], "cure_cpu": seconds, "cured_by": better.method[-30:],
            "cured_trust": better.verdict.trust}  # fmt: skip


def work(pipe: Any, kind: str, names: Sequence[str], cache: str, cure: str) -> None:
    """Send a row for every fit of some models."""
    import jax

    import lowerbound.names as lb
    from lowerbound.trust import judging

    spent: list[tuple[float, float]] = []
    judged = judging.judged

    def timed(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter(), time.process_time()
        try:
            return judged(*args, **kwargs)
        finally:
            spent.append((time.perf_counter() - began[0], time.process_time() - began[1]))

    judging.judged = timed
    jax.block_until_ready(jax.numpy.zeros(1) + 1)
    for name in names:
        nuts = None
        for label, method, model, data, reference in loaded(kind, name, Path(cache)):
            row: dict[str, Any] = {"set": kind, "model": name, "method": label}
            spent.clear()
            precision = reference.precision if isinstance(reference, Case) else None
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    began = time.perf_counter(), time.process_time()
                    fit = fitted(model, data, method, precision)
                    wall, cpu = time.perf_counter() - began[0], time.process_time() - began[1]
                    row |= {"fit": wall - spent[-1][0], "verdict": spent[-1][0]}
                    row |= {"fit_cpu": cpu - spent[-1][1], "verdict_cpu": spent[-1][1]}
                    row |= {"trust": fit.verdict.trust, "text": str(fit.verdict)}
                    row |= {"rung": (fit.plan.ladder or (fit.method,))[-1][:60]}
                    if fit.verdict.evidence is not None:
                        found = fit.verdict.evidence
                        row |= {"by": found.by, "k_hat": found.k_hat}
                        row |= {"efficiency": found.efficiency}
                    if isinstance(reference, Case):
                        reference = flat(reference.known(fit))
                    row |= errors(fit, reference)
                    if cure:
                        again = partial(lb.fit, model, **data, until="trusted", progress=False)
                        row |= cured(fit, again, reference)
                    if cure == "nuts":
                        nuts = nuts_seconds(model, data) if nuts is None else nuts
                        row["nuts_cpu"] = nuts
                except Exception as error:
                    row["reason"] = one_line(error)
            row["warned"] = sorted({type(w.message).__name__ for w in caught})
            pipe.send(row)


def flat(truth: Truth) -> Reference:
    """The truth of every number."""
    moments = [dict(labelled({s: np.asarray(t[i]) for s, t in truth.items()})) for i in (0, 1)]
    return {n: (moments[0][n], moments[1][n]) for n in moments[0]}


def fitted(model: Any, data: Any, method: Any, precision: str | None = None) -> Any:
    """A fit with its verdict. A method that is a number fits so many rows, as if they were all."""
    import lowerbound.names as lb
    from lowerbound.trust import judging

    if not isinstance(method, int):
        with lb.computing(precision=precision):
            return lb.fit(model, **data, method=method, progress=False, until="fitted")
    with lb.computing(verdicts=False):
        some = lb.fit(model, **{name: array[:method] for name, array in data.items()})
    whole = replace(some, call=replace(some.call, args=(), kwargs=dict(data)))
    # That it is exact is so of the rows it has seen.
    whole = replace(whole, answer=replace(whole.answer, exact=False))
    return judging.with_verdict(whole, 1.0)


def rows_of(
    kind: str, names: Sequence[str], cache: Path, limit: float, cure: str
) -> Iterator[dict[str, Any]]:
    context = multiprocessing.get_context("spawn")
    pipe, end = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(end, kind, names, str(cache), cure), daemon=True)
    process.start()
    end.close()
    named = names[0]
    while True:
        if not pipe.poll(limit):
            reason = f"no end in {limit:g} s"
            yield {"set": kind, "model": f"after {named}", "method": "", "reason": reason}
            break
        try:
            row = pipe.recv()
        except EOFError:
            break
        named = row["model"]
        yield row
    process.kill()
    process.join()


def is_wrong(row: Mapping[str, Any]) -> bool:
    return not (abs(row["mean"]) <= MEAN and abs(row["sd"]) <= SD)


def line(row: Mapping[str, Any]) -> str:
    head = f"{row['set'][:6]:6s} {row['model'][:34]:34s} {row['method']:9s}"
    if "trust" not in row or "mean" not in row:
        return f"{head} {row.get('reason', '')[:120]}"
    wrong, flagged = is_wrong(row), row["trust"] != "all"
    kind = {(1, 1): "caught", (1, 0): "MISSED", (0, 1): "ALARM", (0, 0): "right"}[wrong, flagged]
    return (
        f"{head} {kind:7s} mean {row['mean']:+5.2f} {row['mean_of'][:12]:12s} "
        f"sd x{math.exp(row['sd']):4.2f} {row['sd_of'][:12]:12s} {row.get('by', ''):9s} "
        f"{row['fit_cpu']:5.1f}+{row['verdict_cpu']:4.1f} s  {_cure(row)}{row['text'][:110]}"
    )


def _cure(row: Mapping[str, Any]) -> str:
    if "cured" not in row:
        return ""
    nuts = f", NUTS {row['nuts_cpu']:.1f} s" if "nuts_cpu" in row else ""
    return f"score {row['score']:.2f} -> {row['cured']:.2f}, +{row['cure_cpu']:.1f} s{nuts}  "


def part(row: Mapping[str, Any]) -> str:
    """What a row was to the constants of the verdict."""
    if row["set"] == "untuned":
        return "not tuned on"
    return "the other half" if sum(map(ord, row["model"])) % 2 else "tuned on"


def summary(rows: list[dict[str, Any]]) -> Iterator[str]:
    known = [r for r in rows if "mean" in r]
    for title in ("tuned on", "the other half", "not tuned on"):
        own = [r for r in known if part(r) == title]
        wrong, right = [r for r in own if is_wrong(r)], [r for r in own if not is_wrong(r)]
        seen = sum(r["trust"] != "all" for r in wrong)
        alarms = sum(r["trust"] != "all" for r in right)
        yield f"{title}: {seen} of {len(wrong)} wrong fits flagged (target 95%), "
        yield f"    {alarms} of {len(right)} others flagged (target at most 15%)"
    share = np.median([r["verdict_cpu"] / r["fit_cpu"] for r in known])
    auto = np.median(
        [r["verdict_cpu"] / r["fit_cpu"] for r in known if r["method"] in ("auto", "")]
    )
    yield f"CPU seconds of the verdict / of the fit, median: {share:.2f}; automatic {auto:.2f}"
    done = [r for r in known if "cured" in r]
    if done:
        near = sum(r["cured"] <= WITHIN for r in done)
        yield f"cured: {near} of {len(done)} with a score <= {WITHIN} (target 95%), "
        timed = [r for r in done if "nuts_cpu" in r]
        sooner = sum(r["fit_cpu"] + r["verdict_cpu"] + r["cure_cpu"] < r["nuts_cpu"] for r in timed)
        yield f"    {sooner} of {len(timed)} in less time than NUTS (target 80%)"
        far = [r for r in done if not r["cured"] <= WITHIN]
        yield from (f"    not near: {r['model']} {r['method']} {r['cured']:.2f}" for r in far)


def names_of(kind: str, cache: Path) -> list[str]:
    if kind == "cases":
        from benchmarks.verdict_cases import cases

        return list(cases())
    if kind == "untuned":
        from benchmarks.verdict_cases import untuned

        return list(untuned())
    if kind == "mixed":
        return ["sleepstudy", "cbpp", "pastes", "verbagg", "insteval"]
    if kind == "posteriordb":
        return [e["name"] for e in json.loads((found_folder(None) / "index.json").read_text())]
    return sorted(file.stem for file in cache.glob("*.npz"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdicts", description=__doc__)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--models", help="names with commas between; all of them by default")
    parser.add_argument("--cache", type=Path, default=CACHE, help="of the stress references")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for a fit")
    parser.add_argument("--cure", action="store_true", help="correct those that are not trusted")
    parser.add_argument("--nuts", action="store_true", help="the same, and run NUTS")
    parser.add_argument("--json", type=Path, help="a file for all rows")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    cure = "nuts" if options.nuts else "cure" if options.cure else ""
    for kind in options.sets.split(","):
        known = names_of(kind, options.cache)
        wanted = options.models.split(",") if options.models else known
        names = [name for name in wanted if name in known]
        # Cases take a second each, of which a process of their own would take three.
        for some in [names] if kind in ("cases", "untuned") else [[name] for name in names]:
            for row in rows_of(kind, some, options.cache, options.limit, cure):
                rows.append(row)
                print(line(row), flush=True)
                if options.json:
                    options.json.write_text(json.dumps(rows, indent=1))
    print(*summary(rows), sep="\n")


if __name__ == "__main__":
    main()
