"""What a program of the stress set is, and the priors that people port from Stan."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

Data = dict[str, Any]


@dataclass(frozen=True)
class Program:
    """A NumPyro model, and data that it explains; `model` and `data` are what a benchmark reads."""

    model: Callable[..., Any]
    simulate: Callable[[np.random.Generator], Data]

    @property
    def data(self) -> Data:
        """The same data at every call; programs that share a simulation share its data."""
        seed = zlib.crc32(self.simulate.__name__.encode())
        return self.simulate(np.random.default_rng(seed))


def flat(name: str, size: int | None = None) -> Any:
    """A site with Stan's implicit flat prior on the reals."""
    if size is None:
        return numpyro.sample(name, dist.ImproperUniform(constraints.real, (), ()))
    return numpyro.sample(name, dist.ImproperUniform(constraints.real_vector, (), (size,)))


def flat_positive(name: str) -> Any:
    """A site with a flat prior on the positive reals."""
    return numpyro.sample(name, dist.ImproperUniform(constraints.positive, (), ()))


def flat_ordered(name: str, size: int) -> Any:
    """A site with a flat prior on increasing vectors."""
    return numpyro.sample(name, dist.ImproperUniform(constraints.ordered_vector, (), (size,)))
