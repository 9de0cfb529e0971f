"""What corrections gain and cost, on posteriordb: linear response of mean fields, NUTS from q.

Of each model, mean fields are fitted (coordinate ascent where every site has a factor, and a
diagonal Gaussian), then corrected. Errors are |log(sd / reference sd)| over all reference numbers.
Seconds are CPU seconds of this process, compilation included, so that ratios hold on a machine that
others use too. With --nuts, effective draws of the worst number per CPU second of `lb.correct(fit,
"nuts")` against NumPyro's NUTS from its own start, on hierarchical models, cold and warm.

    python -m benchmarks.corrections --folder ../shared/data/posteriordb [--nuts] [models ...]
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.posteriordb import VARIABLE


def numbers(fit: Any, reference: Any) -> np.ndarray:
    """The log ratios of sds, over the reference's names that the fit has."""
    sites = {name.partition("[")[0] for name in reference.names}
    flat = {}
    for site in sites:
        try:
            sd = np.asarray(fit.sd(site))
        except Exception:  # a name of the reference that is no site
            continue
        for index in np.ndindex(sd.shape):
            label = f"[{','.join(str(i + 1) for i in index)}]" if index else ""
            flat[site + label] = sd[index]
    pairs = [(flat[n], s) for n, s in zip(reference.names, reference.sd, strict=True) if n in flat]
    ours, theirs = np.array(pairs).T
    with np.errstate(all="ignore"):
        found: np.ndarray = np.abs(np.log(ours / theirs))
    return found[np.isfinite(found)]


def said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0][:90]}"


def clocked(function: Any) -> tuple[Any, float]:
    began = time.process_time()
    found = function()
    return found, time.process_time() - began


def linear_response(
    port: Any, name: str, methods: dict[str, Any]
) -> list[tuple[str, Any, Any, float]]:
    """Of each method: errors before, after, and seconds of the correction over those of the fit."""
    import lowerbound.names as lb

    rows = []
    for label, method in methods.items():
        try:
            fit, first = clocked(lambda m=method: lb.fit(port.model, **port.data, method=m))
            better, second = clocked(lambda f=fit: lb.correct(f, "linear-response"))
        except lb.errors.LowerboundError as error:
            print(f"{name[:44]:44s} {label:9s} {said(error)}")
            continue
        before, after = numbers(fit, port.ref), numbers(better, port.ref)
        rows.append((label, before, after, second / first))
        print(
            f"{name[:44]:44s} {label:9s} |log sd ratio| median {np.median(before):.3f} -> "
            f"{np.median(after):.3f}, most {before.max():.2f} -> {after.max():.2f}; "
            f"{first:.1f} s + {second:.1f} s",
            flush=True,
        )
    return rows


def trajectories(port: Any, name: str) -> list[float] | None:
    """Effective draws a second of NUTS from q, over those of NumPyro's NUTS from its own start."""
    import jax
    from numpyro.diagnostics import effective_sample_size
    from numpyro.infer import MCMC, NUTS

    import lowerbound.names as lb

    fit = lb.fit(port.model, **port.data)
    kernel = NUTS(port.model)
    plain = MCMC(kernel, num_warmup=1000, num_samples=1000, num_chains=4,
                 chain_method="vectorized", progress_bar=False)  # fmt: skip

    def worst(draws: Any) -> float:
        sizes = [effective_sample_size(np.asarray(draws[n], float)) for n in fit.sites]
        return float(min(np.min(size) for size in sizes))

    def ours(seed: int) -> float:
        held = lb.correct(fit, "nuts", draws=4000, seed=seed).q.parameters["values"]
        return worst({n: a.reshape(4, -1, *a.shape[1:]) for n, a in held.items()})

    def theirs(seed: int) -> float:
        with jax.enable_x64(True):
            plain.run(jax.random.key(seed), **port.data)
            return worst(plain.get_samples(group_by_chain=True))

    pairs = []
    try:
        for seed in (0, 1):  # cold, and warm
            (size, seconds), (other, most) = (
                clocked(lambda s=seed: ours(s)),
                clocked(lambda s=seed: theirs(s)),
            )
            pairs.append((size / seconds) / (other / most))
            print(
                f"{name[:44]:44s} {'warm' if seed else 'cold'}: {size:,.0f} effective in "
                f"{seconds:.1f} s from q; {other:,.0f} in {most:.1f} s plainly; "
                f"ratio {pairs[-1]:.1f}",
                flush=True,
            )
    except lb.errors.LowerboundError as error:
        print(f"{name[:44]:44s} {said(error)}")
        return None
    return pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", default=os.environ.get(VARIABLE, "../shared/data/posteriordb"))
    parser.add_argument("--nuts", action="store_true", help="NUTS from q on hierarchical models")
    parser.add_argument(
        "models", nargs="*", help="names, or parts of them; all where none is given"
    )
    options = parser.parse_args()
    folder = Path(options.folder).resolve()
    sys.path.insert(0, str(folder))
    warnings.simplefilter("ignore")
    import lowerbound.names as lb

    ports = importlib.import_module("ports")
    index = json.loads((folder / "split.json").read_text("utf-8"))
    chosen = [
        one for one in index if not options.models or any(m in one["name"] for m in options.models)
    ]
    if options.nuts:
        kinds = [one for one in chosen if one["kind"] == "hierarchical"]
        ratios = [trajectories(ports.load(one["name"]), one["name"]) for one in kinds]
        found = [ratio for ratio in ratios if ratio is not None]
        cold, warm = np.median(np.array(found), axis=0)
        models = f"of {len(found)} models (median)"
        print(f"\neffective draws a second: ratio {cold:.1f} cold, {warm:.1f} warm, {models}")
        return
    methods = {"CAVI": lb.CAVI(), "diagonal": lb.Gaussian(rank="diagonal")}
    rows = [
        r for one in chosen for r in linear_response(ports.load(one["name"]), one["name"], methods)
    ]
    for label in methods:
        own = [row for row in rows if row[0] == label]
        if not own:
            continue
        before, after = (np.median(np.concatenate([row[k] for row in own])) for k in (1, 2))
        models = [np.median(row[2]) / max(float(np.median(row[1])), 1e-9) for row in own]
        print(
            f"\n{label}: median |log sd ratio| {before:.3f} -> {after:.3f}, "
            f"{after / before:.2f} of it, over all numbers of {len(own)} models; "
            f"median of models {np.median(models):.2f}; "
            f"cost {np.median([row[3] for row in own]):.1f} of the fit (median)"
        )


if __name__ == "__main__":
    main()
