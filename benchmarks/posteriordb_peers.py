"""Posteriors of a NumPyro program by `lb.fit` and by other software, each with its own defaults.

A method takes a port (its `model` and `data`) and returns `fit`, with nothing compiled. Only
`fit(seed)` is timed, cold at its first call and warm at its second; it returns `moments(sites)`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np

DRAWS = 10_000  # from an approximation: moments to a hundredth of an sd
STEPS, RATES = 20_000, (0.001, 0.01, 0.1)
CHAIN = {"num_warmup": 1000, "num_samples": 1000, "num_chains": 1}

Found = dict[str, tuple[np.ndarray, np.ndarray]]  # site -> mean, sd
Fit = Callable[[int], Callable[[set[str]], Found]]


def lowerbound(port: Any) -> Fit:
    """`lb.fit`, automatic, in its own precision."""
    import lowerbound.names as lb

    forget("lowerbound")
    return lambda seed: partial(moments, lb.fit(port.model, **port.data, seed=seed))


def moments(fit: Any, sites: set[str]) -> Found:
    """Means and sds of a fit of `lb.fit`, by draws where a site is determined by others."""
    latent = {site for site in sites if site in fit.posterior}
    draws = fit.sample(DRAWS, seed=0) if sites - latent else {}
    rest = mean_and_sd({s: draws[s] for s in sites - latent if s in draws})
    return {site: (fit.mean(site), fit.sd(site)) for site in latent} | rest


def nuts(port: Any) -> Fit:
    """NumPyro's NUTS: one chain, 1000 draws after 1000 of warm-up."""
    import jax
    from numpyro.infer import MCMC, NUTS

    sampler = MCMC(NUTS(port.model), **CHAIN, progress_bar=False)

    def fit(seed: int) -> Callable[[set[str]], Found]:
        sampler.run(jax.random.PRNGKey(seed), **port.data)
        return partial(of_draws, port, jax.block_until_ready(sampler.get_samples()))

    return fit


def guided(name: str, port: Any) -> Fit:
    """An automatic guide of NumPyro: 20,000 steps of Adam at the rate that was best for seed 0."""
    import jax
    from numpyro.infer import SVI, Trace_ELBO, autoguide
    from numpyro.optim import Adam

    def svi(rate: float) -> Any:
        guide = getattr(autoguide, name)(port.model)
        return SVI(port.model, guide, Adam(rate), Trace_ELBO())

    def run(method: Any, seed: int) -> Any:
        return method.run(jax.random.PRNGKey(seed), STEPS, progress_bar=False, **port.data)

    def final_loss(rate: float) -> float:
        return float(np.nan_to_num(np.mean(run(svi(rate), 0).losses[-1000:]), nan=np.inf))

    if not hasattr(port, "rate"):  # found once for all seeds, and not timed
        port.rate = min(RATES, key=final_loss)
    method = svi(port.rate)

    def fit(seed: int) -> Callable[[set[str]], Found]:
        params = jax.block_until_ready(run(method, seed).params)
        if name == "AutoLaplaceApproximation":  # its Hessian is part of the fit
            jax.block_until_ready(method.guide.get_transform(params)(0.0 * params["auto_loc"]))
        key = jax.random.PRNGKey(seed + 1)
        draw = partial(method.guide.sample_posterior, key, params, sample_shape=(DRAWS,))
        return lambda sites: of_draws(port, draw(), sites)

    return fit


def pathfinder(port: Any) -> Fit:
    """BlackJAX's Pathfinder with its defaults, on NumPyro's unconstrained log density."""
    import jax
    from blackjax.vi.pathfinder import approximate, sample
    from numpyro.infer.util import initialize_model

    @cache
    def begun(seed: int) -> tuple[Any, Any]:
        info = initialize_model(jax.random.PRNGKey(seed), port.model, model_kwargs=port.data)
        log_density = lambda z: -info.potential_fn(z)  # noqa: E731
        return info, jax.jit(lambda key, z: approximate(key, log_density, z)[0])

    def fit(seed: int) -> Callable[[set[str]], Found]:
        info, compiled = begun(seed)
        state = jax.block_until_ready(compiled(jax.random.PRNGKey(seed), info.param_info.z))
        free = partial(sample, jax.random.PRNGKey(seed + 1), state, DRAWS)
        return lambda sites: of_draws(port, jax.vmap(info.postprocess_fn)(free()[0]), sites)

    return fit


GUIDES: Mapping[str, Callable[[Any], Fit]] = {
    "normal": partial(guided, "AutoNormal"),
    "multivariate": partial(guided, "AutoMultivariateNormal"),
    "laplace": partial(guided, "AutoLaplaceApproximation"),
}
METHODS = {"lowerbound": lowerbound, "nuts": nuts, **GUIDES, "pathfinder": pathfinder}


def forget(package: str) -> None:
    """Empty what modules of a package remember: memoised functions, and dicts named `_in_lower`."""
    for name, module in list(sys.modules.items()):
        for label, value in vars(module).copy().items() if name.startswith(package) else ():
            if hasattr(value, "cache_clear"):
                value.cache_clear()
            elif isinstance(value, dict) and re.fullmatch("_[a-z][a-z_]*", label):
                value.clear()


def of_draws(port: Any, draws: Mapping[str, Any], sites: set[str]) -> Found:
    """Means and sds from draws of the latent sites, also of what is determined by them."""
    import jax
    from numpyro.handlers import seed, substitute, trace

    def determined(latents: Mapping[str, Any]) -> dict[str, Any]:
        found = trace(substitute(seed(port.model, 0), latents)).get_trace(**port.data)
        return {s: found[s]["value"] for s in sites - set(draws) if s in found}

    rest = jax.jit(jax.vmap(determined))(dict(draws)) if sites - set(draws) else {}
    return mean_and_sd({s: draws[s] for s in sites if s in draws} | rest)


def mean_and_sd(draws: Mapping[str, Any]) -> Found:
    arrays = {site: np.asarray(values, float) for site, values in draws.items()}
    return {site: (values.mean(0), values.std(0, ddof=1)) for site, values in arrays.items()}
