"""Densities of augmented programs: auxiliary variables, and sites given them."""

from __future__ import annotations

import math
from typing import Any, Final

import jax.numpy as jnp

from lowerbound.joint.templates.special_values import log_factorial, log_gamma, pick
from lowerbound.joint.templates.template import Template
from lowerbound.joint.terms.indices import Array
from lowerbound.joint.terms.monomials import exponential, logarithm, power
from lowerbound.joint.terms.value import Operand, add, shape_of, times, total


def _minus(operand: Operand) -> Operand:
    return times(-1.0, operand)


def _logits_given_weight(
    x: Operand, logits: Operand, weight: Operand, counts: Operand, own: Operand, kind: str
) -> Operand:
    log_h: Operand = 0.0
    if kind == "BinomialLogits":
        failures = add(own, _minus(x))
        log_h = add(log_factorial(own), _minus(log_factorial(x)), _minus(log_factorial(failures)))
    elif kind == "NegativeBinomialLogits":
        log_h = add(log_gamma(add(x, own)), _minus(log_factorial(x)), _minus(log_gamma(own)))
    return add(
        times(x, logits),
        times(-0.5, counts, logits),
        times(-0.5, weight, power(logits, 2.0)),
        times(-math.log(2.0), counts),
        log_h,
    )


def _logits_parameters(distribution: Any) -> dict[str, Any]:
    whole = distribution.whole
    return {
        "logits": whole.logits,
        "weight": distribution.weight,
        "counts": distribution.total_count,
        "own": getattr(whole, "total_count", 1),
        "kind": distribution.kind,
    }


def _laplace_given_weight(x: Operand, loc: Operand, scale: Operand, weight: Operand) -> Operand:
    square = power(add(x, _minus(loc)), 2.0)
    quadratic = times(-0.5, weight, square, power(scale, -2.0))
    return add(quadratic, _minus(logarithm(scale)), -math.log(2.0))


def _root_inverse_gamma(x: Operand, concentration: Operand, rate: Operand) -> Operand:
    return add(
        times(concentration, logarithm(rate)),
        _minus(log_gamma(concentration)),
        times(add(times(concentration, -2.0), -1.0), logarithm(x)),
        times(-1.0, rate, power(x, -2.0)),
        math.log(2.0),
    )


def _softmax_parameters(distribution: Any) -> dict[str, Any]:
    """The parameters of the whole density; counts also as a column against the categories."""
    whole = distribution.whole
    counts: Array = jnp.asarray(getattr(whole, "total_count", 1)) * 1.0
    return {"logits": whole.logits, "counts": counts, "kind": distribution.kind}


def _softmax_linear(x: Operand, logits: Operand, counts: Operand, kind: str) -> Operand:
    if kind == "CategoricalLogits":
        return pick(logits, x)
    return add(
        total(times(x, logits), [-1]),
        log_factorial(counts),
        _minus(total(log_factorial(x), [-1])),
    )


def _bouchard_parameters(distribution: Any) -> dict[str, Any]:
    shared = _softmax_parameters(distribution)
    return {
        **shared,
        "offset": distribution.offset,
        "weights": distribution.weights,
        "above": shared["logits"] - distribution.offset[..., None],
        "column": shared["counts"][..., None],
    }


def _softmax_given_weights(
    x: Operand, logits: Operand, counts: Operand, offset: Operand, weights: Operand,
    above: Operand, column: Operand, kind: str,
) -> Operand:  # fmt: skip
    categories = shape_of(weights)[-1]
    return add(
        _softmax_linear(x, logits, counts, kind),
        times(-1.0, counts, offset),
        times(-0.5, total(times(column, above), [-1])),
        times(-0.5, total(times(weights, power(above, 2.0)), [-1])),
        times(-categories * math.log(2.0), counts),
    )


def _softmax_given_rate(
    x: Operand, logits: Operand, counts: Operand, rate: Operand, kind: str
) -> Operand:
    means = times(rate, total(exponential(logits), [-1]))
    return add(_softmax_linear(x, logits, counts, kind), _minus(means))


def _flat_gamma(x: Operand, concentration: Operand) -> Operand:
    power_of_x = times(add(concentration, -1.0), logarithm(x))
    return add(power_of_x, _minus(log_gamma(concentration)))


def _allocated(x: Operand, rate: Operand) -> Operand:
    return add(times(x, logarithm(rate)), _minus(log_factorial(x)))


AUGMENTED: Final[dict[str, Template]] = {
    # Densities relative to the law itself, which the factor has as its base measure.
    "PolyaGamma": Template.named(lambda x, total_count: 0.0, constants=(("total_count", "total"),)),
    "LevyWeight": Template.named(lambda x: 0.0),
    "Offset": Template.named(lambda x: 0.0),
    "FlatGamma": Template.named(_flat_gamma),
    "Allocated": Template.named(_allocated),
    "LogitsGivenWeight": Template(_logits_parameters, _logits_given_weight),
    "LaplaceGivenWeight": Template.named(_laplace_given_weight),
    "RootInverseGamma": Template.named(_root_inverse_gamma),
    "SoftmaxGivenWeights": Template(_bouchard_parameters, _softmax_given_weights),
    "SoftmaxGivenRate": Template(
        lambda d: {**_softmax_parameters(d), "rate": d.rate}, _softmax_given_rate
    ),
}
