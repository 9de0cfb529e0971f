"""Counts whose rate is a sum of products, allocated to the products.

x ~ Poisson(sum_k r_k) is the sum of z_k ~ Poisson(r_k): Poisson factorisation. Multinomial counts
with probabilities sum_k r_vk split in the same way, as in latent Dirichlet allocation on counts;
there r_vk are no means, and the counts z_vk have the measure prod r^z / z!.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln
from numpyro.distributions import Distribution, constraints

from lowerbound.errors import AugmentationError
from lowerbound.rewrite.augmentations.behind import Node
from lowerbound.rewrite.augmentations.given import GivenAuxiliary, Measure
from lowerbound.rewrite.augmentations.log_sum import picked
from lowerbound.rewrite.augmentations.site import Chosen

Products = list[Array]  # each broadcasts to the shape of the sum and a last axis of terms


class Allocated(Measure):
    """The measure rate^z / z! on counts z: a Poisson law without its normaliser."""

    arg_constraints: ClassVar[dict[str, Any]] = {"rate": constraints.positive}
    support = constraints.nonnegative_integer

    def log_prob(self, value: Array) -> Array:
        """The log of the measure's density."""
        density: Array = value * jnp.log(self.rate) - gammaln(value + 1.0)
        return density

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws of the Poisson law of that rate, to start somewhere."""
        shape = (*sample_shape, *self.batch_shape)
        return jax.random.poisson(key, jnp.broadcast_to(self.rate, shape))


class PickedTerm(GivenAuxiliary):
    """A categorical density p(y) = sum_k exp(terms_k) given which term; draws are of p itself."""

    arg_constraints: ClassVar[dict[str, Any]] = {}
    pytree_data_fields = ("whole", "terms", "chosen")

    def __init__(
        self, whole: Distribution, terms: Any, chosen: Any, *, validate_args: Any = None
    ) -> None:
        self.whole, self.terms, self.chosen = whole, terms, chosen
        shapes = whole.batch_shape, jnp.shape(terms)[:-1], jnp.shape(chosen)
        super().__init__(jnp.broadcast_shapes(*shapes), (), validate_args=validate_args)

    def log_prob(self, value: Array) -> Array:
        """The chosen term, and log K to undo the uniform prior of the choice."""
        return picked(self.terms, self.chosen) + math.log(self.terms.shape[-1])


# --------------------------------------------------------------------------------------------------
# The rewritings


def poisson_counts(site: Chosen) -> Distribution:
    """Poisson counts of rate sum_k r_k as z_k ~ Poisson(r_k) and x = sum_k z_k."""
    products = _products(site, "rate")
    rates = _multiplied(products)
    counts = site.auxiliary("counts", dist.Poisson(rates), rates.shape[-1])
    return dist.Delta(counts.sum(-1))


def multinomial_counts(site: Chosen) -> Distribution:
    """Multinomial counts of probabilities sum_k r_vk as counts z_vk with the measure r^z / z!."""
    products = _products(site, "probs")
    rates = _multiplied(products)
    counts = site.auxiliary("counts", Allocated(rates), *rates.shape[-2:])
    total = gammaln(site.law.total_count + 1.0)
    return dist.Delta(counts.sum(-1), log_density=total, event_dim=1)


def categorical_term(site: Chosen) -> Distribution:
    """A category of probabilities sum_k r_vk as a term c, uniform, and the density K r_yc."""
    products = _products(site, "probs")
    logs = [jnp.log(_entry(array, site.value)) for array in products]
    terms = sum(logs[1:], start=logs[0])
    chosen = site.auxiliary(
        "indicator", dist.Categorical(probs=jnp.full(terms.shape[-1], 1.0 / terms.shape[-1]))
    )
    return PickedTerm(site.law, terms, chosen)


def _products(site: Chosen, parameter: str) -> Products:
    kind = type(site.law).__name__
    if site.value is None:
        raise AugmentationError.latent(
            site.name, site.where, kind, "its counts are what is allocated"
        )
    found = products_of(site.behind(parameter))
    if found is None:
        raise AugmentationError.of_site(
            site.name,
            site.where,
            f"is a {kind} whose {parameter} is not seen to be a sum of products",
            f"a product of matrices, e.g. {parameter} = theta @ beta. Leave '{site.name}' out of "
            "augment",
        )
    return found


def _multiplied(products: Products) -> Array:
    rates = products[0]
    for other in products[1:]:
        rates = rates * other
    return rates


def _entry(array: Array, value: Any) -> Array:
    """array[..., value, :] of the observed categories."""
    if array.shape[-2] == 1:
        return jnp.squeeze(array, -2)
    if all(n == 1 for n in array.shape[:-2]):
        return array.reshape(array.shape[-2:])[value]
    rows = jnp.broadcast_to(array, (*np.shape(value), *array.shape[-2:]))
    return jnp.take_along_axis(rows, jnp.asarray(value)[..., None, None], axis=-2)[..., 0, :]


# --------------------------------------------------------------------------------------------------
# Sums of products


def products_of(node: Node) -> Products | None:
    """Factors whose product, summed over a last axis, is the node; None where it is no sum."""
    match node.operation:
        case "dot_general":
            return _of_matrices(node)
        case "reduce_sum":
            return _of_sum(node)
        case "transpose":
            inside = products_of(node.inputs[0])
            order = (*node.parameters["permutation"], len(node.shape))
            return None if inside is None else [jnp.transpose(a, order) for a in inside]
        case "mul":
            for one, other in (node.inputs, node.inputs[::-1]):
                inside = products_of(one)
                if inside is not None and one.shape == node.shape:
                    return [*inside, _aligned(other.value, node.shape)[..., None]]
        case "div":
            one, other = node.inputs
            inside = products_of(one)
            if inside is not None and one.shape == node.shape:
                return [*inside, 1.0 / _aligned(other.value, node.shape)[..., None]]
        case "copy" | "convert_element_type":
            return products_of(node.inputs[0])
        case "broadcast_in_dim":
            inside = products_of(node.inputs[0])
            return None if inside is None else [_placed(a, node) for a in inside]
        case "squeeze":
            inside = products_of(node.inputs[0])
            axes = node.parameters["dimensions"]
            return None if inside is None else [jnp.squeeze(a, axes) for a in inside]
    return None


def _placed(array: Array, node: Node) -> Array:
    """A factor with the dimensions that the node adds to its input, of length one."""
    shape = [1] * len(node.shape)
    for axis, size in zip(node.parameters["broadcast_dimensions"], array.shape, strict=False):
        shape[axis] = size
    return array.reshape((*shape, array.shape[-1]))


def _aligned(array: Any, shape: tuple[int, ...]) -> Array:
    return jnp.reshape(array, (1,) * (len(shape) - np.ndim(array)) + np.shape(array))


def _of_matrices(node: Node) -> Products | None:
    (left_sum, right_sum), (left_batch, right_batch) = node.parameters["dimension_numbers"]
    if len(left_sum) != 1:
        return None
    left, right = (n.value for n in node.inputs)
    batch = len(left_batch)
    one = jnp.transpose(left, _order(left.ndim, left_batch, left_sum))
    two = jnp.transpose(right, _order(right.ndim, right_batch, right_sum))
    free = left.ndim - batch - 1, right.ndim - batch - 1
    first = (*one.shape[:-1], *(1,) * free[1], one.shape[-1])
    second = (*two.shape[:batch], *(1,) * free[0], *two.shape[batch:])
    return [one.reshape(first), two.reshape(second)]


def _order(rank: int, batch: Sequence[int], summed: Sequence[int]) -> tuple[int, ...]:
    free = [a for a in range(rank) if a not in (*batch, *summed)]
    return (*batch, *free, *summed)


def _of_sum(node: Node) -> Products | None:
    axes = node.parameters["axes"]
    if len(axes) != 1 or not node.depends:
        return None
    return [jnp.moveaxis(node.inputs[0].value, axes[0], -1)]
