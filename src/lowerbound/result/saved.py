"""The call of a fit that was read from a file, where the data are not."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import numpyro

from lowerbound.errors import ArgumentError, StorageError
from lowerbound.model.inputs.arguments import split_arguments


@dataclass(frozen=True)
class Saved:
    """What a file keeps of the call `model(*args, **kwargs)` and of its ELBO.

    kept: the arguments in the file, by name. rows: those that are not, because they have one row
    per row of the data plate. unsaved: those that are not, because they are neither arrays nor
    JSON. elbo_terms: the ELBO by site.
    """

    elbo_terms: dict[str, float]
    kept: dict[str, Any] = field(default_factory=dict)
    rows: tuple[str, ...] = ()
    unsaved: tuple[str, ...] = ()

    def call(
        self,
        function: Callable[..., Any],
        sites: Mapping[str, Mapping[str, Any]],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments in the file with the new ones put in; the old data become None."""
        if not args and not kwargs:
            raise needs_data("The old rows", self.rows)
        signature = inspect.signature(function)
        new = signature.bind_partial(*args, **kwargs).arguments
        for name in self.unsaved:
            if name not in new:
                raise ArgumentError(
                    f"Argument '{name}' of the model is not in the file: it is neither an array "
                    f"nor JSON.\nPass it with the new data, {name}=..."
                )
        merged = {**dict.fromkeys(self.rows), **self.kept, **new}
        call = inspect.BoundArguments(signature, {})
        call.arguments.update({n: merged[n] for n in signature.parameters if n in merged})
        shared = {n: s["shape"] for n, s in sites.items() if s["scope"] == "global"}
        check_sites(shared, _shapes(function, call.args, call.kwargs))
        return call.args, dict(call.kwargs)


def needs_data(what: str, rows: tuple[str, ...] = ()) -> ArgumentError:
    """The error for what only the data of the fit can answer."""
    names = f" ({', '.join(rows)})" if rows else ""
    return ArgumentError(
        f"{what} need the data of the fit{names}, which its file does not hold.\n"
        "Pass new data here, or the old data to lb.load(path, model, ...), as they were passed to "
        "lb.fit."
    )


def model_record(function: Callable[..., Any]) -> dict[str, Any]:
    """What a file says of the model: its name and those of its arguments."""
    try:
        arguments = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        arguments = []
    return {"name": str(getattr(function, "__name__", type(function).__name__)),
            "arguments": arguments}  # fmt: skip


def check_model(file: str, record: Mapping[str, Any], model: Callable[..., Any]) -> None:
    """The model must be the one that the record describes; `file` says what holds it."""
    expected, found = (
        f"{one['name']}({', '.join(one['arguments'])})" for one in (record, model_record(model))
    )
    if expected != found:
        raise StorageError(
            f"{file} of {expected}; found the model {found}.\n"
            "Pass the model that was fitted. If it was only renamed, set "
            f"model.__name__ = {record['name']!r}."
        )


def check_sites(
    expected: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]]
) -> None:
    """The model must have the latent sites of the file, in the same shapes."""
    for name, shape in expected.items():
        if name not in found:
            raise StorageError(
                f"The model has no latent site '{name}'; its sites are {', '.join(found)}.\n"
                f"Expected the model of the saved fit, with '{name}' of shape {tuple(shape)}."
            )
        if tuple(found[name]) != tuple(shape):
            raise StorageError(
                f"Site '{name}' has shape {tuple(found[name])} in the model, {tuple(shape)} in the "
                "saved fit.\nExpected the model and the settings that were saved. Check the "
                "arguments that fix shapes."
            )


def _shapes(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, tuple[int, ...]]:
    """The shapes of all sample sites of one run of the program."""
    arguments = split_arguments(function, args, kwargs)
    plain_args, plain_kwargs = arguments.call(arguments.data)
    program = numpyro.handlers.seed(numpyro.handlers.uncondition(function), jax.random.key(0))
    with numpyro.validation_enabled(False):
        trace = numpyro.handlers.trace(program).get_trace(*plain_args, **plain_kwargs)
    return {n: np.shape(s["value"]) for n, s in trace.items() if s["type"] == "sample"}
