"""One clean density per distribution: the list of templates, as data.

NumPyro's own `log_prob` hides the algebra behind numerical guards (clips, where, is_finite), so the
density is stated here once, as on paper, in the arithmetic of `Value`. A distribution that is not
listed still tries the jaxpr of its own `log_prob`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, multigammaln

from lowerbound.joint.rules.structural import reindexed
from lowerbound.joint.terms.algebra import is_positive
from lowerbound.joint.terms.expression import OPERATIONS
from lowerbound.joint.terms.impossible import possible
from lowerbound.joint.terms.indicators import elementwise
from lowerbound.joint.terms.labelled import Array, Atom, Gather, Index, is_static
from lowerbound.joint.terms.matrices import inverse, log_determinant
from lowerbound.joint.terms.monomials import exponential, logarithm, monomial, power, with_atom
from lowerbound.joint.terms.value import (
    Operand,
    Poison,
    Value,
    add,
    broadcast,
    dense,
    first_poison,
    lift,
    shape_of,
    times,
    total,
)

Outcome = Value | Poison
LOG_TWO_PI = math.log(2.0 * math.pi)


@dataclass(frozen=True)
class Template:
    """How to read a distribution's parameters, and its log density in them.

    `density(x, **parameters)` has the shape of `log_prob(x)`.
    """

    parameters: Callable[[Any], dict[str, Array]]
    density: Callable[..., Operand]


def _fields(*names: str) -> Callable[[Any], dict[str, Array]]:
    return lambda distribution: {name: getattr(distribution, name) for name in names}


# --------------------------------------------------------------------------------------------------
# Functions that the densities need beyond + - * / **


def _special(name: str, function: Callable[..., Any]) -> Callable[..., Outcome]:
    def apply(*operands: Operand) -> Outcome:
        tree = (name, *(("operand", i) for i in range(len(operands))))
        return elementwise(
            name,
            lambda *arrays: function(*map(_float, arrays)),
            operands,
            tree=tree if name in OPERATIONS else None,
        )

    return apply


def _float(array: Array) -> Any:
    return jnp.asarray(array, dtype=float) if is_static(array) else array * 1.0


log_gamma = _special("log Gamma", gammaln)
log_beta = _special("log Beta", OPERATIONS["log Beta"])
softplus = _special("softplus", lambda a: jnp.logaddexp(a, 0.0))


def log_factorial(operand: Operand) -> Outcome:
    """The log factorial log x!, an atom of its own when x is a latent count."""

    def inner(value: Value) -> Outcome | None:
        split = monomial(value)
        if split is None or split[0].terms[0].constants or split[0].terms[0].coefficient != 1.0:
            return None
        if len(split[1]) != 1 or split[1][0].atom != _count(split[1][0].atom.site):
            return None
        return with_atom(value, split[1][0], function="logfactorial", parameter=1.0)

    return elementwise("log x!", lambda a: gammaln(_float(a) + 1.0), [operand], inner)


def _count(site: str) -> Atom:
    return Atom(site, domain="count")


def log_sum_exp(operand: Operand) -> Outcome:
    """The sum log sum_k exp(a_k) over the last axis; log pi is normalised already."""
    result = logarithm(total(exponential(operand), [-1]))
    return replace(result, operation="logsumexp") if isinstance(result, Poison) else result


def pick(table: Operand, x: Operand) -> Outcome:
    """table[..., x]: the entry of the last axis that x names, latent or observed."""
    poison = first_poison([table, x])
    if poison is not None:
        return poison.spread(np.broadcast_shapes(shape_of(table)[:-1], shape_of(x)), [table, x])
    categories = shape_of(table)[-1]
    which = lift(x)
    column = Value((*which.shape, 1), (*which.axes, None), which.terms)
    if not which.is_constant:
        hot = elementwise("==", lambda a, k: 1.0 * (a == k), [column, np.arange(categories)])
        return total(times(hot, table), [-1])
    entries, column = broadcast([lift(table), column])
    array, labels = dense(column)
    last = entries.axes[-1]
    if last is None:
        return replace(entries, shape=entries.shape[:-1], axes=entries.axes[:-1])
    where: Index = Gather(array.astype(int), labels)
    index: list[Index | None] = [*entries.axes[:-1], where]
    return reindexed(entries, index, entries.shape[:-1], entries.axes[:-1])


# --------------------------------------------------------------------------------------------------
# Densities


SMALLEST_SCALE = 1e-150  # the square of what is smaller underflows; it is 0 to all digits


def _normal(x: Operand, loc: Operand, scale: Operand) -> Operand:
    scale = elementwise("scale", _nonzero, [scale], lambda value: value)
    square = power(add(x, times(loc, -1.0)), 2.0)
    return add(
        times(-0.5, square, power(scale, -2.0)), times(-1.0, logarithm(scale)), -0.5 * LOG_TWO_PI
    )


def _nonzero(scale: Array) -> Array:
    """Constant scales, away from zero: what underflows there is a latent value that is zero."""
    if is_static(scale):
        return np.maximum(scale, SMALLEST_SCALE)
    return jnp.maximum(scale, SMALLEST_SCALE)


def _log_normal(x: Operand, loc: Operand, scale: Operand) -> Operand:
    log_x = logarithm(x)
    return add(_normal(log_x, loc, scale), times(-1.0, log_x))


def _half_normal(x: Operand, scale: Operand) -> Operand:
    return add(_normal(x, 0.0, scale), math.log(2.0))


def _multivariate_normal(x: Operand, loc: Operand, matrix: Operand, kind: str) -> Operand:
    size = shape_of(x)[-1]
    precision: Operand
    if kind == "scale_tril":
        root = inverse(matrix)
        precision = _matmul(_transpose(root), root)
        logdet = times(-2.0, log_determinant(matrix, triangular=True))
    elif kind == "covariance_matrix":
        precision, logdet = inverse(matrix), times(-1.0, log_determinant(matrix))
    else:
        precision, logdet = matrix, log_determinant(matrix)
    deviation = add(x, times(loc, -1.0))
    row, column = _expand(deviation, -2), _expand(deviation, -1)
    quadratic = total(times(precision, row, column), [-2, -1])
    return add(times(-0.5, quadratic), times(0.5, logdet), -0.5 * size * LOG_TWO_PI)


def _expand(operand: Operand, axis: int) -> Operand:
    if isinstance(operand, Poison):
        shape = list(operand.shape)
        shape.insert(len(shape) + 1 + axis, 1)
        return replace(operand, shape=tuple(shape))
    value = lift(operand)
    shape, axes = list(value.shape), list(value.axes)
    where = len(shape) + 1 + axis
    shape.insert(where, 1)
    axes.insert(where, None)
    return Value(tuple(shape), tuple(axes), value.terms)


def _transpose(operand: Operand) -> Operand:
    if isinstance(operand, Poison):
        return operand
    value = lift(operand)
    order = [*range(len(value.shape) - 2), len(value.shape) - 1, len(value.shape) - 2]
    return Value(
        tuple(value.shape[d] for d in order), tuple(value.axes[d] for d in order), value.terms
    )


def _matmul(a: Operand, b: Operand) -> Outcome:
    return total(times(_expand(a, -1), _expand(b, -3)), [-2])


def _multivariate_parameters(distribution: Any) -> dict[str, Any]:
    for kind in ("precision_matrix", "covariance_matrix", "scale_tril"):
        matrix = distribution.__dict__.get(kind)
        if matrix is None:
            continue
        if not isinstance(matrix, jax.core.Tracer):
            # A constant of 32 bits has a factor of as many, which is what NumPyro's density reads.
            kind, matrix = "scale_tril", distribution.scale_tril
        return {"loc": distribution.loc, "matrix": matrix, "kind": kind}
    raise TypeError("a MultivariateNormal without a matrix")


def _gamma(x: Operand, concentration: Operand, rate: Operand) -> Operand:
    return add(
        times(concentration, logarithm(rate)),
        times(-1.0, log_gamma(concentration)),
        times(add(concentration, -1.0), logarithm(x)),
        times(-1.0, rate, x),
    )


def _inverse_gamma(x: Operand, concentration: Operand, rate: Operand) -> Operand:
    return add(
        times(concentration, logarithm(rate)),
        times(-1.0, log_gamma(concentration)),
        times(add(times(concentration, -1.0), -1.0), logarithm(x)),
        times(-1.0, rate, power(x, -1.0)),
    )


def _exponential(x: Operand, rate: Operand) -> Operand:
    return add(logarithm(rate), times(-1.0, rate, x))


def beta(x: Operand, concentration1: Operand, concentration0: Operand) -> Operand:
    """The log density of the Beta distribution."""
    return add(
        times(add(concentration1, -1.0), logarithm(x)),
        times(add(concentration0, -1.0), logarithm(add(1.0, times(x, -1.0)))),
        times(-1.0, log_beta(concentration1, concentration0)),
    )


def _dirichlet(x: Operand, concentration: Operand) -> Operand:
    return add(
        total(times(add(concentration, -1.0), logarithm(x)), [-1]),
        times(-1.0, total(log_gamma(concentration), [-1])),
        log_gamma(total(concentration, [-1])),
    )


def _wishart(x: Operand, concentration: Operand, rate_matrix: Operand) -> Operand:
    size = shape_of(x)[-1]
    return add(
        times(0.5, add(concentration, -size - 1.0), log_determinant(x)),
        times(-0.5, total(times(rate_matrix, _transpose(x)), [-2, -1])),
        _wishart_constant(concentration, rate_matrix, size),
    )


def _inverse_wishart(x: Operand, concentration: Operand, scale_matrix: Operand) -> Operand:
    size = shape_of(x)[-1]
    return add(
        times(-0.5, add(concentration, size + 1.0), log_determinant(x)),
        times(-0.5, total(times(scale_matrix, _transpose(inverse(x))), [-2, -1])),
        _wishart_constant(concentration, scale_matrix, size),
    )


def _wishart_constant(concentration: Operand, rate: Operand, size: int) -> Operand:
    multigamma = _special("log Gamma_D", lambda a: multigammaln(a, size))
    return add(
        times(0.5, concentration, log_determinant(rate)),
        times(-0.5 * size * math.log(2.0), concentration),
        times(-1.0, multigamma(times(0.5, concentration))),
    )


def _bernoulli(x: Operand, probs: Operand) -> Operand:
    return _binomial_kernel(x, 1.0, probs)


def _binomial_kernel(x: Operand, total_count: Operand, probs: Operand) -> Operand:
    failures = add(total_count, times(x, -1.0))
    return add(_x_log(x, probs), _x_log(failures, add(1.0, times(probs, -1.0))))


def _x_log(x: Operand, y: Operand) -> Operand:
    """The product x log y, which is 0 at x = 0 even where y is 0."""

    def on_constants(a: Array, b: Array) -> Array:
        from jax.scipy.special import xlogy

        return possible(xlogy(_float(a), _float(b)))

    if not (isinstance(x, Value) and not x.is_constant) and not isinstance(y, Poison):
        value = lift(y)
        if value.is_constant:
            return elementwise("x log y", on_constants, [x, y])
    log = logarithm(y)
    if isinstance(log, Value) and _may_diverge(log):
        tree = ("x log y", ("operand", 0), ("operand", 1))
        return elementwise("x log y", on_constants, [x, y], tree=tree)
    return times(x, log)


def _may_diverge(log: Value) -> bool:
    """Whether the log of something that may be zero is in the value."""
    trees = [
        f.atom.expression.tree for term in log.terms for f in term.latents if f.atom.expression
    ]
    return any(t[0] == "log" and not is_positive(t[1], False) for t in trees)


def _finite(logits: Operand) -> Outcome:
    """Logits with infinite ones as `IMPOSSIBLE`, or its opposite."""
    return elementwise("logits", possible, [logits], lambda value: value)


def _bernoulli_logits(x: Operand, logits: Operand) -> Operand:
    logits = _finite(logits)
    return add(times(x, logits), times(-1.0, softplus(logits)))


def _binomial(x: Operand, probs: Operand, total_count: Operand) -> Operand:
    return add(_binomial_kernel(x, total_count, probs), _log_choose(x, total_count))


def _binomial_logits(x: Operand, logits: Operand, total_count: Operand) -> Operand:
    logits = _finite(logits)
    return add(
        times(x, logits), times(-1.0, total_count, softplus(logits)), _log_choose(x, total_count)
    )


def _log_choose(x: Operand, total_count: Operand) -> Operand:
    failures = add(total_count, times(x, -1.0))
    return add(
        log_factorial(total_count),
        times(-1.0, log_factorial(x)),
        times(-1.0, log_factorial(failures)),
    )


def _categorical(x: Operand, probs: Operand) -> Operand:
    return pick(logarithm(probs), x)


def _categorical_logits(x: Operand, logits: Operand) -> Operand:
    logits = _finite(logits)
    return add(pick(logits, x), times(-1.0, log_sum_exp(logits)))


def _multinomial(x: Operand, probs: Operand, total_count: Operand) -> Operand:
    return add(
        total(_x_log(x, probs), [-1]),
        log_factorial(total_count),
        times(-1.0, total(log_factorial(x), [-1])),
    )


def _multinomial_logits(x: Operand, logits: Operand, total_count: Operand) -> Operand:
    logits = _finite(logits)
    normalised = add(logits, times(-1.0, _expand(log_sum_exp(logits), -1)))
    return add(
        total(times(x, normalised), [-1]),
        log_factorial(total_count),
        times(-1.0, total(log_factorial(x), [-1])),
    )


def _poisson(x: Operand, rate: Operand) -> Operand:
    return add(_x_log(x, rate), times(-1.0, rate), times(-1.0, log_factorial(x)))


def _geometric(x: Operand, probs: Operand) -> Operand:
    return add(_x_log(x, add(1.0, times(probs, -1.0))), logarithm(probs))


def _uniform(x: Operand, low: Operand, high: Operand) -> Operand:
    return times(-1.0, logarithm(add(high, times(low, -1.0))))


TEMPLATES: dict[str, Template] = {
    "Normal": Template(_fields("loc", "scale"), _normal),
    "LogNormal": Template(_fields("loc", "scale"), _log_normal),
    "HalfNormal": Template(_fields("scale"), _half_normal),
    "MultivariateNormal": Template(_multivariate_parameters, _multivariate_normal),
    "Gamma": Template(_fields("concentration", "rate"), _gamma),
    "Chi2": Template(_fields("concentration", "rate"), _gamma),
    "InverseGamma": Template(
        lambda d: {"concentration": d.base_dist.concentration, "rate": d.base_dist.rate},
        _inverse_gamma,
    ),
    "Exponential": Template(_fields("rate"), _exponential),
    "Beta": Template(_fields("concentration1", "concentration0"), beta),
    "Dirichlet": Template(_fields("concentration"), _dirichlet),
    "Wishart": Template(_fields("concentration", "rate_matrix"), _wishart),
    "InverseWishart": Template(_fields("concentration", "scale_matrix"), _inverse_wishart),
    "BernoulliProbs": Template(_fields("probs"), _bernoulli),
    "BernoulliLogits": Template(_fields("logits"), _bernoulli_logits),
    "BinomialProbs": Template(_fields("probs", "total_count"), _binomial),
    "BinomialLogits": Template(_fields("logits", "total_count"), _binomial_logits),
    "CategoricalProbs": Template(_fields("probs"), _categorical),
    "CategoricalLogits": Template(_fields("logits"), _categorical_logits),
    "MultinomialProbs": Template(_fields("probs", "total_count"), _multinomial),
    "MultinomialLogits": Template(_fields("logits", "total_count"), _multinomial_logits),
    "Poisson": Template(_fields("rate"), _poisson),
    "GeometricProbs": Template(_fields("probs"), _geometric),
    "Uniform": Template(_fields("low", "high"), _uniform),
    "Unit": Template(_fields("log_factor"), lambda x, log_factor: log_factor),
    "ImproperUniform": Template(lambda d: {}, lambda x: 0.0),
}
