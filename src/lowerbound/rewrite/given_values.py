"""A program given some of its latent sites: they are data of it, at values of an argument."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jax import Array
from numpyro import handlers

from lowerbound.model import Model, trace_model
from lowerbound.rewrite.signature import takes_first


def given_name(site: str) -> str:
    """The name of the data argument that holds the value of a conditioned site."""
    return f"given['{site}']"


def with_given(
    model: Model,
    values: Mapping[str, np.ndarray],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Model:
    """The program with some sites observed, at values with a leading axis of one.

    The plate of the rows is that of the whole program, which the new observations are not in.
    """
    function = model.function

    def given_the_rest(given: Mapping[str, Array], *args: Any, **kwargs: Any) -> Any:
        observed = {site: given[site][0] for site in given}
        return handlers.condition(function, data=observed)(*args, **kwargs)

    given_the_rest.unsettled = ("given",)  # type: ignore[attr-defined]
    plate = model.data_plate
    call = (dict(values), *args)
    program = takes_first("given", given_the_rest, function)
    return trace_model(program, call, kwargs, plate.name if plate else None)
