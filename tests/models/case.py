"""A model of the zoo with its simulated data: what every law is run over."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.oracles.expectations import Step

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """A NumPyro program, data simulated from a seed, and what is known of its evidence."""

    name: str
    model: Callable[..., None]
    arguments: Callable[[int], Arguments]
    # Positional arguments whose leading axis is the data plate; () when rows are not exchangeable.
    rows: tuple[int, ...] = (0,)
    # Rows reduce to statistics that add up; with quadrature each brings a function of its own.
    adds_up: bool = True
    # Point values of latent sites, of positive density, from which the first sweep starts.
    start: Callable[[int], dict[str, np.ndarray]] | None = None
    # Sweeps written by hand, called with the start and the model's own arguments.
    oracle: Callable[..., Iterator[Step]] | None = None
    # The blocks of the oracle; None when they are those derived.
    blocks: list[tuple[str, ...]] | None = None
    # log p(x), called with the model's own arguments.
    evidence: Callable[..., float] | None = None
    # Arguments small enough for `evidence`; None when `arguments` are.
    small: Callable[[int], Arguments] | None = None
    # The posterior lies in the variational family: the ELBO equals the evidence.
    exact: bool = False
    # Restarts that find a good optimum on these data.
    restarts: int = 1
