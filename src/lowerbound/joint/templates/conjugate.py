"""Densities of exponential families, and of the sites that they are conjugate to."""

from __future__ import annotations

import math
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import multigammaln

from lowerbound.joint.templates.special_values import (
    expand,
    finite_logits,
    log_beta,
    log_factorial,
    log_gamma,
    log_sum_exp,
    matmul,
    pick,
    softplus,
    special,
    transposed,
    x_log,
)
from lowerbound.joint.templates.template import LOG_TWO_PI, Template
from lowerbound.joint.terms.indicators import elementwise
from lowerbound.joint.terms.indices import Array, is_static
from lowerbound.joint.terms.matrices import inverse, log_determinant
from lowerbound.joint.terms.monomials import logarithm, power
from lowerbound.joint.terms.value import Operand, add, shape_of, times, total

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
        precision = matmul(transposed(root), root)
        logdet = times(-2.0, log_determinant(matrix, triangular=True))
    elif kind == "covariance_matrix":
        precision, logdet = inverse(matrix), times(-1.0, log_determinant(matrix))
    else:
        precision, logdet = matrix, log_determinant(matrix)
    deviation = add(x, times(loc, -1.0))
    row, column = expand(deviation, -2), expand(deviation, -1)
    quadratic = total(times(precision, row, column), [-2, -1])
    return add(times(-0.5, quadratic), times(0.5, logdet), -0.5 * size * LOG_TWO_PI)


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
        times(-0.5, total(times(rate_matrix, transposed(x)), [-2, -1])),
        _wishart_constant(concentration, rate_matrix, size),
    )


def _inverse_wishart(x: Operand, concentration: Operand, scale_matrix: Operand) -> Operand:
    size = shape_of(x)[-1]
    return add(
        times(-0.5, add(concentration, size + 1.0), log_determinant(x)),
        times(-0.5, total(times(scale_matrix, transposed(inverse(x))), [-2, -1])),
        _wishart_constant(concentration, scale_matrix, size),
    )


def _wishart_constant(concentration: Operand, rate: Operand, size: int) -> Operand:
    multigamma = special("log Gamma_D", lambda a: multigammaln(a, size))
    return add(
        times(0.5, concentration, log_determinant(rate)),
        times(-0.5 * size * math.log(2.0), concentration),
        times(-1.0, multigamma(times(0.5, concentration))),
    )


def _bernoulli(x: Operand, probs: Operand) -> Operand:
    return _binomial_kernel(x, 1.0, probs)


def _binomial_kernel(x: Operand, total_count: Operand, probs: Operand) -> Operand:
    failures = add(total_count, times(x, -1.0))
    return add(x_log(x, probs), x_log(failures, add(1.0, times(probs, -1.0))))


def _bernoulli_logits(x: Operand, logits: Operand) -> Operand:
    logits = finite_logits(logits)
    return add(times(x, logits), times(-1.0, softplus(logits)))


def _binomial(x: Operand, probs: Operand, total_count: Operand) -> Operand:
    return add(_binomial_kernel(x, total_count, probs), _log_choose(x, total_count))


def _binomial_logits(x: Operand, logits: Operand, total_count: Operand) -> Operand:
    logits = finite_logits(logits)
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
    logits = finite_logits(logits)
    return add(pick(logits, x), times(-1.0, log_sum_exp(logits)))


def _multinomial(x: Operand, probs: Operand, total_count: Operand) -> Operand:
    return add(
        total(x_log(x, probs), [-1]),
        log_factorial(total_count),
        times(-1.0, total(log_factorial(x), [-1])),
    )


def _multinomial_logits(x: Operand, logits: Operand, total_count: Operand) -> Operand:
    logits = finite_logits(logits)
    normalised = add(logits, times(-1.0, expand(log_sum_exp(logits), -1)))
    return add(
        total(times(x, normalised), [-1]),
        log_factorial(total_count),
        times(-1.0, total(log_factorial(x), [-1])),
    )


def _poisson(x: Operand, rate: Operand) -> Operand:
    return add(x_log(x, rate), times(-1.0, rate), times(-1.0, log_factorial(x)))


def _geometric(x: Operand, probs: Operand) -> Operand:
    return add(x_log(x, add(1.0, times(probs, -1.0))), logarithm(probs))


def _uniform(x: Operand, low: Operand, high: Operand) -> Operand:
    return times(-1.0, logarithm(add(high, times(low, -1.0))))


CONJUGATE: Final[dict[str, Template]] = {
    "Normal": Template.named(_normal),
    "LogNormal": Template.named(_log_normal),
    "HalfNormal": Template.named(_half_normal),
    "MultivariateNormal": Template(_multivariate_parameters, _multivariate_normal),
    "Gamma": Template.named(_gamma),
    "Chi2": Template.named(_gamma),
    "InverseGamma": Template(
        lambda d: {"concentration": d.base_dist.concentration, "rate": d.base_dist.rate},
        _inverse_gamma,
    ),
    "Exponential": Template.named(_exponential),
    "Beta": Template.named(beta),
    "Dirichlet": Template.named(_dirichlet),
    "Wishart": Template.named(_wishart),
    "InverseWishart": Template.named(_inverse_wishart),
    "BernoulliProbs": Template.named(_bernoulli),
    "BernoulliLogits": Template.named(_bernoulli_logits),
    "BinomialProbs": Template.named(_binomial),
    "BinomialLogits": Template.named(_binomial_logits),
    "CategoricalProbs": Template.named(_categorical),
    "CategoricalLogits": Template.named(_categorical_logits),
    "MultinomialProbs": Template.named(_multinomial),
    "MultinomialLogits": Template.named(_multinomial_logits),
    "Poisson": Template.named(_poisson),
    "GeometricProbs": Template.named(_geometric),
    "Uniform": Template.named(_uniform),
    "Unit": Template.named(lambda x, log_factor: log_factor),
    "ImproperUniform": Template.named(lambda x: 0.0),
}
