"""NumPyro's ways into inference, replaced: what they are given is met, and they end soon.

Every hook hands `(model, args, kwargs)` to `meet`, which gives draws of the latent sites or None.
`MCMC` then holds those draws; `SVI` and its kin take a few steps of their own, so that guides have
parameters; a call inside another or inside a JAX transformation is left as it is.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from functools import partial, wraps
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

STEPS = 20  # of a program's own optimiser
CHAIN = 50  # steps and draws of a chain whose kernel has no model
Meet = Callable[[Any, tuple[Any, ...], dict[str, Any], str, Any], Mapping[str, Any] | None]


class Hooks:
    """The replacements, and whether one of them is at work."""

    def __init__(self, meet: Meet) -> None:
        self.meet, self.inside = meet, False

    def install(self, text: str) -> None:
        """Replace what a program with this text may call."""
        import numpyro.infer as infer
        from numpyro.infer import util

        for name in ("run", "warmup"):
            self.replace(infer.MCMC, name, self.chain)
        for name in ("run", "init"):
            self.replace(infer.SVI, name, self.optimiser)
        for module in (infer, util):
            self.replace(module, "initialize_model", self.initialised)
        if "einstein" in text:
            stein = importlib.import_module("numpyro.contrib.einstein").SteinVI
            for name in ("run", "init"):
                self.replace(stein, name, self.optimiser)
        if "nested_sampling" in text:
            try:
                module = importlib.import_module("numpyro.contrib.nested_sampling")
            except ImportError:  # which the program then meets itself
                return
            self.replace(module.NestedSampler, "run", self.nested)
            module.NestedSampler.get_samples = lambda self, *_, **__: self._samples
            module.NestedSampler.print_summary = lambda self: None
            module.NestedSampler.diagnostics = lambda self: None

    def replace(self, owner: Any, name: str, hook: Callable[..., Any]) -> None:
        """Put a hook before `owner.name`, which it is given and may call."""
        original = getattr(owner, name, None)
        if original is None:
            return
        label = f"{getattr(owner, '__name__', owner).rpartition('.')[2]}.{name}"

        @wraps(original)
        def replaced(*args: Any, **kwargs: Any) -> Any:
            traced = (isinstance(x, jax.core.Tracer) for x in jax.tree.leaves((args[1:], kwargs)))
            if self.inside or any(traced):
                return original(*args, **kwargs)
            self.inside = True
            try:
                return hook(original, label, *args, **kwargs)
            finally:
                self.inside = False

        setattr(owner, name, replaced)

    def chain(self, original: Any, label: str, sampler: Any, *args: Any, **kwargs: Any) -> Any:
        """`MCMC.run` and `warmup`: the chain holds the draws that `meet` gives."""
        bound = inspect.signature(original).bind(sampler, *args, **kwargs)
        data, named = bound.arguments.get("args", ()), bound.arguments.get("kwargs", {})
        model = model_of(sampler.sampler)
        draws = model and self.meet(model, data, named, label, sampler.sampler)
        if not draws:
            sampler.num_warmup = min(sampler.num_warmup, CHAIN)
            return original(sampler, *args, **kwargs)
        gibbs = "Gibbs" in type(sampler.sampler).__name__
        hold(sampler, draws, bound.arguments.get("extra_fields", ()), discrete=gibbs)
        sampler._args, sampler._kwargs = data, named
        sampler._last_state = SimpleNamespace(rng_key=bound.arguments["rng_key"], z={})
        return None

    def optimiser(self, original: Any, label: str, method: Any, *args: Any, **kwargs: Any) -> Any:
        """`SVI.run` and `init`: the model is met, then the optimiser takes a few steps."""
        bound = inspect.signature(original).bind(method, *args, **kwargs)
        data, named = bound.arguments.get("args", ()), bound.arguments.get("kwargs", {})
        fixed = getattr(method, "static_kwargs", {})
        self.meet(method.model, data, {**fixed, **named}, label, None)
        if "num_steps" in bound.arguments:
            bound.arguments["num_steps"] = min(bound.arguments["num_steps"], STEPS)
        if "progress_bar" in bound.signature.parameters:
            bound.arguments["progress_bar"] = False
        return original(*bound.args, **bound.kwargs)

    def initialised(self, original: Any, label: str, *args: Any, **kwargs: Any) -> Any:
        """`initialize_model`: what the program does with the potential is its own."""
        given = inspect.signature(original).bind(*args, **kwargs).arguments
        named = given.get("model_kwargs") or {}
        self.meet(given["model"], given.get("model_args", ()), dict(named), label, None)
        return original(*args, **kwargs)

    def nested(self, original: Any, label: str, method: Any, *args: Any, **kwargs: Any) -> None:
        """`NestedSampler.run`: it holds the draws."""
        method._samples = self.meet(method.model, args[1:], kwargs, label, None)


def model_of(kernel: Any) -> Any:
    """The model of a kernel or of the kernel inside it; None where it has a potential only."""
    while kernel is not None:
        model = getattr(kernel, "model", None) or getattr(kernel, "_model", None)
        if model is not None:
            return unwrapped(model)
        kernel = getattr(kernel, "inner_kernel", None)
    return None


def unwrapped(model: Any) -> Any:
    """The program inside what a kernel of kernels has made of it."""
    while getattr(getattr(model, "func", model), "__module__", "").startswith("numpyro.infer"):
        if isinstance(model, partial) and model.args:
            model = model.args[0]
            continue
        cells = [cell.cell_contents for cell in getattr(model, "__closure__", None) or ()]
        inner = [found for found in cells if callable(found)]
        if not inner:
            break
        model = inner[0]
    return model


def hold(sampler: Any, draws: Mapping[str, Any], extra: Any, *, discrete: bool) -> None:
    """Give an `MCMC` object the draws, in its number and shape, and plain extra fields."""
    shape = sampler.num_chains, sampler.num_samples // sampler.thinning
    total = shape[0] * shape[1]
    states: dict[str, Any] = {}
    for name, values in draws.items():
        values = np.asarray(values)
        if discrete or not np.issubdtype(values.dtype, np.integer):
            rows = np.resize(np.arange(len(values)), total)
            states[name] = jnp.asarray(values[rows].reshape(*shape, *values.shape[1:]))
    fields: dict[str, Any] = {sampler._sample_field: states}
    for name in {"diverging", *extra}:
        if name != sampler._sample_field and not name.startswith("~"):
            kind = {"diverging": bool, "num_steps": int}.get(name, float)
            fields[name] = jnp.full(shape, kind(name == "num_steps"))
    sampler._states, sampler._states_flat = fields, None
