"""One model with its data: fitted as a user would, explained, and compared with NUTS."""

from __future__ import annotations

import contextlib
import io
import math
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from benchmarks.located import heavy, of_draws, of_fit
from benchmarks.peak import Peak
from benchmarks.posteriordb import errors, one_line
from benchmarks.posteriordb_peers import forget

DRAWS = 500  # for the program to go on with
CHAINS, WARMUP, SAMPLES = 2, 500, 500
RESERVED = ("method", "seed", "progress", "checkpoint", "model")
Emit = Callable[..., None]


def fitted(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], emit: Emit) -> Any:
    """`lb.fit(model, *args, **kwargs)`, cold; its facts are emitted. None where it raised."""
    import lowerbound.names as lb

    model, kwargs = without_reserved(model, kwargs)
    jax.clear_caches()
    forget("lowerbound")
    jax.block_until_ready(jax.numpy.zeros(1) + 1)
    emit(phase="fit")
    facts: dict[str, Any] = {"outcome": "result"}
    peak = Peak()
    began = time.monotonic(), time.process_time()
    fit = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            fit = lb.fit(model, *args, **kwargs)
        except Exception as error:
            refused = isinstance(error, lb.errors.LowerboundError)
            memory = "RESOURCE_EXHAUSTED" in str(error) or "memory" in type(error).__name__.lower()
            facts["outcome"] = "refusal" if refused else "no memory" if memory else "exception"
            facts["reason"] = f"{type(error).__name__}: {' '.join(str(error).split())}"[:2000]
            if own := fault(model, args, kwargs):
                said = f"the program itself raises {own}; then {facts['reason']}"
                facts |= {"outcome": "not run", "reason": said}
            facts["where"] = "".join(traceback.format_exception(error)[-8:])
    facts["seconds"] = time.monotonic() - began[0]
    facts["cpu"] = time.process_time() - began[1]
    facts["megabytes"] = peak.grown
    facts["warned"] = tuple({one_line(w.message): None for w in caught})
    if fit is not None:
        facts |= described(fit)
    emit(**facts)
    return fit


def fault(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The exception of the program under NumPyro alone, if it raises one."""
    from numpyro import handlers, validation_enabled
    from numpyro.infer import init_to_uniform

    started = handlers.substitute(
        handlers.seed(model, jax.random.PRNGKey(0)), substitute_fn=init_to_uniform
    )
    try:
        with validation_enabled(False):  # as its samplers run it, which draw from no improper prior
            handlers.trace(started).get_trace(*args, **kwargs)
    except Exception as error:
        return one_line(error)
    return ""


def described(fit: Any) -> dict[str, Any]:
    """The rung, the verdict and the bound of a fit."""
    rungs = [str(rung) for rung in getattr(fit.plan, "ladder", ())]
    rung = next((r[2:].strip() for r in rungs if r.startswith("->")), str(fit.method))
    elbo = float(fit.elbo)
    facts = {"rung": rung, "converged": bool(fit.converged), "elbo": elbo}
    facts["trust"] = str(getattr(getattr(fit, "verdict", None), "trust", ""))
    if fit.plan.cost is not None:
        facts |= {"expected": fit.plan.cost.seconds, "expected_mb": fit.plan.cost.megabytes}
    if not math.isfinite(elbo):
        facts |= {"outcome": "exception", "reason": f"a fit whose elbo is {elbo}"}
    return facts


def explained(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], emit: Emit) -> None:
    """Seconds of `lb.explain` after the fit, and what it says, the costs of its rung included."""
    import lowerbound.names as lb

    model, kwargs = without_reserved(model, kwargs)
    emit(phase="explain")
    began = time.monotonic()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()) as said:
        warnings.simplefilter("ignore")
        try:
            plan = lb.explain(model, *args, **kwargs)
        except Exception as error:
            emit(outcome="exception", reason=f"explain: {one_line(error)}")
            return
    emit(explained=time.monotonic() - began, plan=said.getvalue() or str(plan))
    if plan.cost is not None:  # that of the rung that is tried first
        emit(expected=plan.cost.seconds, expected_mb=plan.cost.megabytes)


def compared(
    fit: Any, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], kernel: Any, emit: Emit
) -> None:
    """Run NUTS and emit the errors of the fit against it."""
    from numpyro.diagnostics import split_gelman_rubin

    model, kwargs = without_reserved(model, kwargs)
    emit(phase="nuts")
    start = getattr(kernel, "_init_strategy", None)
    began = time.monotonic()
    try:
        try:
            draws = sampled(model, args, kwargs, start, precise=True)
        except TypeError:  # some programs run in 32 bits alone
            draws = sampled(model, args, kwargs, start, precise=False)
    except Exception as error:
        emit(unjudged=f"NUTS: {one_line(error)}")
        return
    emit(nuts=time.monotonic() - began)
    if fit is None:
        return
    if fit.parameters:
        emit(unjudged="numpyro.param is maximised by the fit, and left as it is by NUTS")
        return
    emit(phase="score")
    try:
        emit(**scored(fit, draws, split_gelman_rubin))
    except Exception as error:
        emit(unjudged=f"no score: {one_line(error)}")


def sampled(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], start: Any, *, precise: bool
) -> dict[str, np.ndarray]:
    """Draws of NUTS by site, chain and iteration, in 64 bits where `precise`."""
    from numpyro.infer import MCMC, NUTS

    options = {"init_strategy": start} if start is not None else {}
    chains = {"num_warmup": WARMUP, "num_samples": SAMPLES, "num_chains": CHAINS}
    try:
        with warnings.catch_warnings(), jax.enable_x64(precise):
            warnings.simplefilter("ignore")
            sampler = MCMC(
                NUTS(model, **options), **chains, chain_method="sequential", progress_bar=False
            )
            sampler.run(jax.random.PRNGKey(0), *args, **kwargs)
            return {s: np.asarray(v) for s, v in sampler.get_samples(group_by_chain=True).items()}
    finally:
        jax.clear_caches()  # the program's own 32 bits must not meet what was compiled for 64


def scored(fit: Any, draws: Mapping[str, np.ndarray], r_hat: Callable[..., Any]) -> dict[str, Any]:
    """Errors over all numbers that vary in NUTS's draws, in units of their sds there."""
    names, means, sds, hats = [], [], [], []
    real = {s: d for s, d in draws.items() if np.issubdtype(d.dtype, np.floating)}
    flat = {site: values.reshape(-1, *values.shape[2:]) for site, values in real.items()}
    by_quantiles = heavy(flat)
    for site, (mean, sd) in of_draws(flat, by_quantiles).items():
        hat = np.asarray(r_hat(real[site]))
        for index in np.ndindex(mean.shape):
            if sd[index] > 1e-10 * (1 + abs(mean[index])):  # a number that is fixed has no error
                label = f"[{','.join(str(i + 1) for i in index)}]" if index else ""
                names.append(site + label)
                means.append(mean[index])
                sds.append(sd[index])
                hats.append(hat[index])
    reference = SimpleNamespace(names=names, mean=np.array(means), sd=np.array(sds))
    found = of_fit(fit, by_quantiles, {name.partition("[")[0] for name in names})
    # NumPyro's draws of what depends on an enumerated site have an axis for its values.
    found = {s: own for s, own in found.items() if np.shape(own[0]) == draws[s].shape[2:]}
    facts = errors(reference, found)
    missing = facts.pop("missing")
    facts["rhat"] = float(np.nanmax(hats))
    facts["worst"] = worst(reference, found)
    return facts | ({"unjudged": f"not in the fit: {', '.join(missing[:5])}"} if missing else {})


def worst(reference: Any, found: Mapping[str, tuple[Any, Any]]) -> str:
    """The number that is farthest off, with both means and sds."""
    seen = []
    for name, mean, sd in zip(reference.names, reference.mean, reference.sd, strict=True):
        site, _, label = name.partition("[")
        if site in found:
            index = tuple(int(i) - 1 for i in label[:-1].split(",")) if label else ()
            own = float(found[site][0][index]), float(found[site][1][index])
            off = max(abs(own[0] - mean) / sd, abs(math.log(max(own[1], 1e-300) / sd)))
            text = f"{name}: {own[0]:.4g} ({own[1]:.3g}), NUTS {mean:.4g} ({sd:.3g})"
            seen.append((off, text))
    return max(seen)[1] if seen else ""


def continued(
    fit: Any, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Draws for the program to go on with: of the fit, or of the prior where there is none."""
    from numpyro import handlers
    from numpyro.infer import Predictive

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if fit is not None:
            try:
                discrete = set(fit.q.values)  # NumPyro's samplers do not return these
                own = [site for site in fit.sites if site not in discrete]
                draws = fit.sample(DRAWS, seed=0, sites=own if discrete else None)
                return {site: np.asarray(v) for site, v in draws.items()}
            except Exception:
                traceback.print_exc()
        try:
            trace = handlers.trace(handlers.seed(model, 0)).get_trace(*args, **kwargs)
            kept = [
                name
                for name, site in trace.items()
                if site["type"] == "deterministic"
                or (site["type"] == "sample" and not site["is_observed"])
            ]
            draw = Predictive(model, num_samples=DRAWS // 10, return_sites=kept)
            found = draw(jax.random.PRNGKey(0), *args, **kwargs)
            return {site: np.asarray(values) for site, values in found.items()}
        except Exception:
            traceback.print_exc()
            return {}


def without_reserved(model: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """What the library advises where a model has an argument with a name that `fit` keeps."""
    kept = {name: value for name, value in kwargs.items() if name in RESERVED}
    if not kept:
        return model, kwargs
    return partial(model, **kept), {n: v for n, v in kwargs.items() if n not in RESERVED}
