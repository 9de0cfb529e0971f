"""Densities without conjugate priors: templates whose terms are functions of one number.

Each is written so that a linear predictor, or a positive parameter, enters every function alone;
then a quadrature of one dimension gives the expectation.
"""

from __future__ import annotations

import math
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import i0e, log_ndtr

from lowerbound.joint.rules.elementwise import applied, number_in
from lowerbound.joint.templates.conjugate import CONJUGATE
from lowerbound.joint.templates.conjugate import beta as beta_density
from lowerbound.joint.templates.special_values import (
    log_beta,
    log_factorial,
    log_gamma,
    pick,
    softplus,
)
from lowerbound.joint.templates.template import LOG_TWO_PI, Template
from lowerbound.joint.terms.expression import Tree
from lowerbound.joint.terms.indicators import elementwise
from lowerbound.joint.terms.indices import Array
from lowerbound.joint.terms.monomials import exponential, logarithm, power
from lowerbound.joint.terms.value import (
    Operand,
    Poison,
    add,
    first_poison,
    lift,
    poisoned,
    shape_of,
    times,
)

_U: Final[Tree] = ("operand", 0)
_SQUARE: Final[Tree] = ("power", _U, ("number", 2.0))

log_one_plus_square = applied("log(1 + u^2)", ("log1p", _SQUARE))
log_one_plus_square_over = applied(
    "log(1 + u^2 / df)",
    ("log1p", ("mul", _SQUARE, ("power", ("operand", 1), ("number", -1.0)))),
)
absolute = applied("abs", ("abs", _U))
cosine = applied("cos", ("cos", _U))
log_two_cosh = applied("log(e^u + e^-u)", ("add", _U, ("softplus", ("mul", ("number", -2.0), _U))))


def _standard(x: Operand, loc: Operand, scale: Operand) -> Operand:
    return times(add(x, times(loc, -1.0)), power(scale, -1.0))


def _minus(operand: Operand) -> Operand:
    return times(operand, -1.0)


# --------------------------------------------------------------------------------------------------
# Location and scale


def _cauchy(x: Operand, loc: Operand, scale: Operand) -> Operand:
    square = log_one_plus_square(_standard(x, loc, scale))
    return add(-math.log(math.pi), _minus(logarithm(scale)), _minus(square))


def _half_cauchy(x: Operand, scale: Operand) -> Operand:
    return add(math.log(2.0), _cauchy(x, 0.0, scale))


def _student(x: Operand, df: Operand, loc: Operand, scale: Operand) -> Operand:
    half, more = times(0.5, df), times(0.5, add(df, 1.0))
    return add(
        log_gamma(more),
        _minus(log_gamma(half)),
        times(-0.5, logarithm(df)),
        -0.5 * math.log(math.pi),
        _minus(logarithm(scale)),
        times(-1.0, more, log_one_plus_square_over(_standard(x, loc, scale), df)),
    )


def _laplace(x: Operand, loc: Operand, scale: Operand) -> Operand:
    u = _standard(x, loc, scale)
    return add(_minus(absolute(u)), _minus(logarithm(scale)), -math.log(2.0))


def _soft_laplace(x: Operand, loc: Operand, scale: Operand) -> Operand:
    u = _standard(x, loc, scale)
    return add(_minus(log_two_cosh(u)), _minus(logarithm(scale)), math.log(2.0 / math.pi))


def _logistic(x: Operand, loc: Operand, scale: Operand) -> Operand:
    u = _standard(x, loc, scale)
    return add(_minus(u), times(-2.0, softplus(_minus(u))), _minus(logarithm(scale)))


def _gumbel(x: Operand, loc: Operand, scale: Operand) -> Operand:
    u = _standard(x, loc, scale)
    return add(_minus(u), _minus(exponential(_minus(u))), _minus(logarithm(scale)))


def _von_mises(x: Operand, loc: Operand, concentration: Operand) -> Operand:
    log_bessel = elementwise("log I0", lambda k: jnp.log(i0e(k)), [concentration])
    return add(
        times(concentration, add(cosine(add(x, _minus(loc))), -1.0)),
        _minus(log_bessel),
        -LOG_TWO_PI,
    )


# --------------------------------------------------------------------------------------------------
# Positive values


def _weibull(x: Operand, scale: Operand, concentration: Operand) -> Operand:
    log_ratio = add(logarithm(x), _minus(logarithm(scale)))
    fixed = None if isinstance(concentration, Poison) else number_in(concentration)
    ratio: Operand
    if fixed is not None:
        ratio = power(times(x, power(scale, -1.0)), fixed)
    else:
        ratio = exponential(times(concentration, log_ratio))
    return add(
        logarithm(concentration),
        times(add(concentration, -1.0), log_ratio),
        _minus(logarithm(scale)),
        _minus(ratio),
    )


def _pareto(x: Operand, scale: Operand, alpha: Operand) -> Operand:
    return add(
        logarithm(alpha),
        times(alpha, logarithm(scale)),
        times(-1.0, add(alpha, 1.0), logarithm(x)),
    )


def _log_uniform(x: Operand, low: Operand, high: Operand) -> Operand:
    width = add(logarithm(high), _minus(logarithm(low)))
    return add(_minus(logarithm(x)), _minus(logarithm(width)))


def _levy(x: Operand, loc: Operand, scale: Operand) -> Operand:
    shifted = add(x, _minus(loc))
    return add(
        -0.5 * LOG_TWO_PI,
        times(0.5, logarithm(scale)),
        times(-0.5, scale, power(shifted, -1.0)),
        times(-1.5, logarithm(shifted)),
    )


# --------------------------------------------------------------------------------------------------
# Counts and grades


def _gamma_poisson(x: Operand, concentration: Operand, rate: Operand) -> Operand:
    log_rate = logarithm(rate)
    return add(
        _log_binomial(x, concentration),
        times(concentration, log_rate),
        times(-1.0, add(concentration, x), softplus(log_rate)),
    )


def _negative_binomial(x: Operand, total_count: Operand, probs: Operand) -> Operand:
    failure = logarithm(add(1.0, _minus(probs)))
    return add(
        _log_binomial(x, total_count), times(total_count, failure), times(x, logarithm(probs))
    )


def _negative_binomial_logits(x: Operand, total_count: Operand, logits: Operand) -> Operand:
    return add(
        _log_binomial(x, total_count),
        times(x, logits),
        times(-1.0, add(x, total_count), softplus(logits)),
    )


def _log_binomial(x: Operand, r: Operand) -> Operand:
    return add(log_gamma(add(x, r)), _minus(log_gamma(r)), _minus(log_factorial(x)))


def _geometric_logits(x: Operand, logits: Operand) -> Operand:
    return add(logits, times(-1.0, add(x, 1.0), softplus(logits)))


def _beta_binomial(
    x: Operand, concentration1: Operand, concentration0: Operand, total_count: Operand
) -> Operand:
    failures = add(total_count, _minus(x))
    return add(
        log_factorial(total_count),
        _minus(log_factorial(x)),
        _minus(log_factorial(failures)),
        log_beta(add(x, concentration1), add(failures, concentration0)),
        _minus(log_beta(concentration1, concentration0)),
    )


def _ordered_logistic(x: Operand, predictor: Operand, cutpoints: Operand) -> Operand:
    """The log of s(c_k - a) - s(c_(k-1) - a) = s(c_k - a) s(a - c_(k-1)) (1 - exp(c_(k-1) - c_k)).

    With s the logistic function, so that the predictor a enters two functions alone.
    """
    poison = first_poison([x, predictor, cutpoints])
    if poison is not None:
        shape = np.broadcast_shapes(shape_of(x), shape_of(predictor))
        return poison.spread(shape, [x, predictor, cutpoints])
    grade = lift(x)
    if not grade.is_constant or not lift(cutpoints).is_constant:
        return poisoned("OrderedLogistic", "its grades and cutpoints must be data", x, cutpoints)
    last = shape_of(cutpoints)[-1]

    def at(offset: int) -> Operand:
        clipped = elementwise("clip", lambda k: jnp.clip(k + offset, 0, last - 1), [grade])
        return pick(cutpoints, clipped)

    above = elementwise("<", lambda k: 1.0 * (k < last), [grade])
    below = elementwise(">", lambda k: 1.0 * (k > 0), [grade])
    upper, lower = at(0), at(-1)

    def log_gap(high: Array, low: Array, inside: Array) -> Array:
        gap = jnp.where(inside > 0, high - low, 1.0)
        return jnp.where(inside > 0, jnp.log(-jnp.expm1(-gap)), 0.0)

    return add(
        times(-1.0, above, softplus(add(predictor, _minus(upper)))),
        times(-1.0, below, softplus(add(lower, _minus(predictor)))),
        elementwise("log gap", log_gap, [upper, lower, times(above, below)]),
    )


# --------------------------------------------------------------------------------------------------
# Truncated


def _truncated_parameters(distribution: Any) -> dict[str, Any]:
    base = distribution.base_dist
    kind = type(base).__name__
    names = ("df", "loc", "scale") if kind == "StudentT" else ("loc", "scale")
    found: dict[str, Any] = {name: getattr(base, name) for name in names}
    sides = [side for side in ("low", "high") if hasattr(distribution, side)]
    if kind == "Normal" and len(sides) == 1:
        sign = 1.0 if sides == ["low"] else -1.0
        bound = getattr(distribution, sides[0])
        found["log_mass"] = log_ndtr(sign * (base.loc - bound) / base.scale)
    elif sides == ["low", "high"]:
        found["log_mass"] = distribution._log_diff_tail_probs
    else:
        inside = 1.0 - base.cdf(distribution.low) if sides == ["low"] else distribution._cdf_at_high
        found["log_mass"] = jnp.log(inside)
    return {**found, "kind": kind}


def _truncated(x: Operand, log_mass: Operand, kind: str, **parameters: Operand) -> Operand:
    base = (CONJUGATE | NONCONJUGATE)[kind].density(x, **parameters)
    return add(base, _minus(log_mass))


# NumPyro's densities of some use JAX's betaln, of seven digits where an argument exceeds 8.
SEVEN_DIGITS: Final = 1e-6

NONCONJUGATE: Final[dict[str, Template]] = {
    "Cauchy": Template.named(_cauchy),
    "HalfCauchy": Template.named(_half_cauchy),
    "StudentT": Template.named(_student),
    "Laplace": Template.named(_laplace),
    "SoftLaplace": Template.named(_soft_laplace),
    "Logistic": Template.named(_logistic),
    "Gumbel": Template.named(_gumbel),
    "VonMises": Template.named(_von_mises),
    "Weibull": Template.named(_weibull),
    "Pareto": Template.named(_pareto),
    "LogUniform": Template.named(_log_uniform),
    "Levy": Template.named(_levy),
    "BetaProportion": Template.named(beta_density),
    "GammaPoisson": Template.named(_gamma_poisson, tolerance=SEVEN_DIGITS),
    "NegativeBinomial2": Template.named(_gamma_poisson, tolerance=SEVEN_DIGITS),
    "NegativeBinomialProbs": Template.named(_negative_binomial, tolerance=SEVEN_DIGITS),
    "NegativeBinomialLogits": Template.named(_negative_binomial_logits),
    "GeometricLogits": Template.named(_geometric_logits),
    "BetaBinomial": Template.named(_beta_binomial, tolerance=SEVEN_DIGITS),
    "OrderedLogistic": Template.named(_ordered_logistic),
    "LeftTruncatedDistribution": Template(_truncated_parameters, _truncated),
    "RightTruncatedDistribution": Template(_truncated_parameters, _truncated),
    "TwoSidedTruncatedDistribution": Template(_truncated_parameters, _truncated),
}
