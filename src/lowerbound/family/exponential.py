"""The exponential family: one interface for every factor of the variational density.

A family holds shapes only; parameters are dictionaries of arrays, so every method is a pure
function that can be jitted, vmapped and differentiated.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution

from lowerbound.errors import ArgumentError
from lowerbound.joint.blocks.kind import Kind

__all__ = ["ExponentialFamily", "Mean", "Natural", "Values"]

Natural = dict[str, Array]
Mean = dict[str, Array]
Values = dict[str, Array]


@dataclass(frozen=True)
class ExponentialFamily(Kind, abc.ABC):
    """A batch of independent factors q(z) = h(z) exp(<natural, t(z)> - A(natural)).

    This is the form of eq:ef-conditional with its sufficient statistics t written out. `natural`
    and `mean` (= E t(z) = grad A) are dictionaries over `statistic_names` whose arrays have shape
    `batch_shape` + the shape of one statistic; `natural` also holds the constants of the support,
    `extra_names`, which no update changes. Natural parameters of matrix statistics are symmetric.

    Which sites it takes, and which statistics their terms are, it states as a `Kind`.
    """

    batch_shape: tuple[int, ...]

    statistic_names: ClassVar[tuple[str, ...]]
    extra_names: ClassVar[tuple[str, ...]] = ()

    @abc.abstractmethod
    def statistic_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each statistic, `batch_shape` included."""

    def extra_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each constant of the support: `batch_shape`."""
        return dict.fromkeys(self.extra_names, self.batch_shape)

    @abc.abstractmethod
    def statistics(self, values: Mapping[str, Array]) -> Mean:
        """The sufficient statistics t(z) at point values."""

    @abc.abstractmethod
    def log_normalizer(self, natural: Mapping[str, Array]) -> Array:
        """A(natural) = log of the integral of h(z) exp<natural, t(z)>, shape `batch_shape`."""

    @abc.abstractmethod
    def mean(self, natural: Mapping[str, Array]) -> Mean:
        """The mean parameters E_q[t(z)] = grad A(natural), in closed form."""

    @abc.abstractmethod
    def natural(self, mean: Mapping[str, Array]) -> Natural:
        """The natural parameters whose mean parameters are `mean`."""

    @abc.abstractmethod
    def sample(
        self, natural: Mapping[str, Array], key: Array, shape: tuple[int, ...] = ()
    ) -> Values:
        """Independent draws of z, each array with leading dimensions `shape`."""

    @abc.abstractmethod
    def marginals(self, natural: Mapping[str, Array]) -> dict[str, Distribution]:
        """The marginal density of each value as a NumPyro distribution."""

    @abc.abstractmethod
    def in_domain(self, natural: Mapping[str, Array]) -> Array:
        """True where exp<natural, t> can be normalised, shape `batch_shape`."""

    @abc.abstractmethod
    def default(self, extras: Mapping[str, Array] | None = None) -> Natural:
        """A proper, spread-out member of the family."""

    def log_measure(self, natural: Mapping[str, Array], values: Mapping[str, Array]) -> Array:
        """Log h(z): 0 on the support, and -inf outside of it where bounds say so."""
        return jnp.zeros(())

    def log_prob(self, natural: Mapping[str, Array], values: Mapping[str, Array]) -> Array:
        """Log q(z) = <natural, t(z)> - A(natural) + log h(z), shape of the draws + `batch_shape`.

        The values may have axes of draws in front.
        """
        affine = self.inner(natural, self.statistics(values)) - self.log_normalizer(natural)
        return affine + self.log_measure(natural, values)

    def inner(self, natural: Mapping[str, Array], mean: Mapping[str, Array]) -> Array:
        """The inner product <natural, mean> of each batch element, shape `batch_shape`."""
        batch = len(self.batch_shape)
        total: Array | float = 0.0
        for key, shape in self.statistic_shapes().items():
            axes = tuple(range(batch - len(shape), 0))
            total = total + jnp.sum(natural[key] * mean[key], axis=axes)
        return jnp.asarray(total)

    def entropy(self, natural: Mapping[str, Array], mean: Mapping[str, Array]) -> Array:
        """The entropy -E_q[log q(z)/h(z)] = A(natural) - <natural, mean>, in nats.

        `mean` must be `self.mean(natural)`: it is an argument because callers already have it, and
        families with a form free of cancellation use that instead.
        """
        return self.log_normalizer(natural) - self.inner(natural, mean)

    def mean_and_entropy(self, natural: Mapping[str, Array]) -> tuple[Mean, Array]:
        """Both, for families that get them from one computation."""
        mean = self.mean(natural)
        return mean, self.entropy(natural, mean)

    def mean_and_domain(self, natural: Mapping[str, Array]) -> tuple[Mean, Array]:
        """The mean, and where it is that of a proper density; for such families, too."""
        return self.mean(natural), self.in_domain(natural)

    def kl(self, natural_q: Mapping[str, Array], natural_p: Mapping[str, Array]) -> Array:
        """KL(q || p) = <natural_q - natural_p, mean_q> - A(natural_q) + A(natural_p) (eq:kl)."""
        difference = {key: natural_q[key] - natural_p[key] for key in self.statistic_names}
        return (
            self.inner(difference, self.mean(natural_q))
            - self.log_normalizer(natural_q)
            + self.log_normalizer(natural_p)
        )

    def _full(self, values: Mapping[str, float]) -> Natural:
        """Natural parameters that are constant over each statistic."""
        shapes = self.statistic_shapes()
        return {key: jnp.full(shapes[key], value, float) for key, value in values.items()}

    def _extras(self, extras: Mapping[str, Array] | None) -> Natural:
        """The constants of the support, each of shape `batch_shape`."""
        missing = [key for key in self.extra_names if extras is None or key not in extras]
        if missing:
            raise ArgumentError(
                f"{type(self).__name__}.default expects extras "
                f"{', '.join(self.extra_names)}; missing: {', '.join(missing)}."
            )
        assert extras is not None
        return {
            key: jnp.broadcast_to(jnp.asarray(extras[key], float), self.batch_shape)
            for key in self.extra_names
        }

    def translated(self, natural: Mapping[str, Array], origin: Array) -> Natural:
        """Natural parameters of x + origin, given those of x, of families that are `located`."""
        raise TypeError(f"{self.name} has no location to move")

    # -- starts -----------------------------------------------------------------------------------

    def noise(self, rng: np.random.Generator) -> np.ndarray | None:
        """Random numbers that `scattered` takes; None of a family that starts where it is."""
        return None

    def scattered(self, natural: Mapping[str, Array], mean: Mean, noise: Array) -> Mean:
        """Mean parameters moved by chance, to break the symmetry between equal factors."""
        return mean

    def assigned(self, indicator: Array) -> Mean:
        """The means of independent elements with these probabilities, of `enumerable` families."""
        return {"indicator": indicator}

    def centre(self, mean: Mapping[str, Array]) -> Values:
        """A central point, from the mean parameters, of families of several sites."""
        raise TypeError(f"{self.name} has no central point")

    def central(self, natural: Mapping[str, Array]) -> Mean:
        """Mean parameters to start the other factors from, finite for every prior."""
        return self.mean(natural)
