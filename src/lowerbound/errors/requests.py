"""Errors of what was asked for: a name, a factor or a rewriting that cannot be had."""

from __future__ import annotations

from lowerbound.errors.roots import ArgumentError


class ReservedNameError(ArgumentError):
    """The model has an argument whose name `fit` keeps for itself."""

    def __init__(self, argument: str, model: str) -> None:
        super().__init__(
            f"The model {model} has an argument '{argument}', a name that fit keeps for itself.\n"
            "Fix it beforehand, functools.partial(model, "
            f"{argument}=...), or rename the argument."
        )


class AugmentationError(ArgumentError):
    """A site cannot be augmented as asked."""


class NoStructureError(ArgumentError):
    """A structured covariance was asked for where all entries meet."""

    def __init__(self, size: int) -> None:
        super().__init__(
            f'Gaussian got rank="structured" for a posterior of {size} dimensions in which no '
            "order of the unconstrained entries makes the second derivatives of log p banded with "
            "a border.\n"
            "Expected units that are independent given the other sites, or a Markov chain. Use "
            'rank="full", or a number of columns such as rank=20.'
        )


class NotFittedError(ArgumentError, AttributeError):
    """An estimator was used before `fit`."""

    def __init__(self, estimator: object, wanted: str) -> None:
        super().__init__(
            f"This {type(estimator).__name__} is not fitted yet, so it has no {wanted}.\n"
            "Expected a call of fit (or partial_fit) first."
        )


class UnfittedModelError(ArgumentError):
    """A picture or an export was asked of a model that has no topics yet."""

    def __init__(self, where: str, model: object, missing: str) -> None:
        super().__init__(
            f"{where} got a {type(model).__name__} without `{missing}`.\n"
            "Expected a fitted topic model: call its fit first."
        )
