"""Errors of what was asked for: a setting, a name, a factor or a rewriting that cannot be had."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lowerbound.errors.roots import ArgumentError, Words, case, told


class SettingError(ArgumentError):
    """A setting has a value that means nothing; `caller` is what it was given to, if named.

    `context` follows the value: that of which it would have to be one, or fit to.
    """

    def __init__(
        self, caller: str, setting: str, value: Any, expected: str, context: str = ""
    ) -> None:
        got = f"{caller} got " if caller else ""
        super().__init__(f"{got}{setting}={value!r}{context}.\nExpected {expected}.")


class UnableError(ArgumentError):
    """Something is asked for that the method does not have: said before any work."""

    @told
    def lacking(cls, asked: str, method: str, why: str, which: str) -> None:
        """{asked} with {method}, which {why}.

        Expected a method that has it, such as lb.CAVI() or lb.SVI(). Drop {which}, or name one with
        method=.
        """

    @told
    def with_parameters(cls, asked: str, method: str, why: str, which: str) -> None:
        """{asked} with {method} for a model with numpyro.param sites, which {why}.

        Expected a model of latent sites alone. Drop {which}, give the parameters priors with
        numpyro.sample, or fix them with numpyro.handlers.substitute.
        """

    @told
    def of_streams(cls, method: str) -> None:
        """fit got columns of a stream with {method}, which needs all rows at once.

        Expected arrays, or method=lb.SVI(...) or lb.Memoized(...).
        """


class UngrowingError(ArgumentError):
    """Components are to be found in a program that has none."""

    def __init__(self, method: str) -> None:
        super().__init__(
            f"{method} moves rows between the components of a mixture, and the model has no "
            "discrete site with one value in every row.\n"
            "Expected one such site, e.g. a Categorical in the plate of the rows, whose value "
            "chooses the component. Use lb.CAVI(), or lb.explain(model, ...) to see the sites."
        )


class UnknownSiteError(ArgumentError):
    """A site is named that there is not; `request` is all that is said before its name."""

    def __init__(
        self,
        request: str,
        site: str,
        known: Sequence[str],
        which: str = "is no latent site of the model",
    ) -> None:
        super().__init__(
            f"{request} '{site}', which {which}.\nExpected names among {', '.join(known)}."
        )


class ChosenSitesError(ArgumentError):
    """Sites are chosen to be conditioned on, integrated out, or to have a Gaussian, in vain."""

    @case
    def number(cls, sites: Sequence[str], most: int) -> str:
        """None is chosen, too many, or one twice."""
        return (
            f"condition got {len(sites)} sites: {', '.join(sites) or 'none'}.\n"
            f"Expected one to {most} different scalar sites: the grid over them grows as a power "
            "of their number."
        )

    @told
    def not_scalar(cls, site: str, shape: tuple[int, ...], where: str) -> None:
        """condition got '{site}', a site of shape {shape}   ({where}).

        Expected scalar sites. Condition on the scalars that this site depends on.
        """

    @told
    def no_interval(cls, site: str, found: str, where: str) -> None:
        """condition got '{site}', whose support is one {found}   ({where}).

        Expected a fixed interval of real numbers. Condition on another site.
        """

    @told
    def all_of_them(cls, sites: tuple[str, ...]) -> None:
        """Over got sites={sites!r}, which are all latent sites of the model.

        Expected some of them. Let one Gaussian cover all: lb.Gaussian().
        """

    @told
    def too_few(cls, sites: tuple[str, ...], left: Sequence[str]) -> None:
        """Over got sites={sites!r}; given these, {left:quoted} still have no exact updates.

        Expected sites without which every other site has one. Add {left:quoted}, or let one
        Gaussian cover all sites: lb.Gaussian().
        """

    @told
    def discrete(cls, site: str, distribution: str, where: str) -> None:
        """Over got sites with '{site}', which is discrete: {distribution}   ({where}).

        Expected continuous sites; discrete ones keep factors of their own.
        """

    @told
    def moving(cls, site: str, where: str) -> None:
        """Over got sites with '{site}', whose support depends on other sites   ({where}).

        Expected a fixed support. Let one Gaussian cover all sites: lb.Gaussian().
        """

    @told
    def inexact(cls, sites: Sequence[str], reason: str, where: str = "") -> Words:
        """Collapsed got {sites:quoted}, which cannot be integrated out exactly: {reason}{place}.

        Expected continuous sites with a factor of a closed form each, independent of each other,
        given all other sites. Choose others, or let one Gaussian cover all sites: lb.Gaussian().
        """
        return {"place": f"   ({where})" if where else ""}


class ReservedNameError(ArgumentError):
    """The model has an argument whose name `fit`, or another caller, keeps for itself."""

    def __init__(self, argument: str, model: str, caller: str = "fit") -> None:
        super().__init__(
            f"The model {model} has an argument '{argument}', a name that {caller} keeps for "
            "itself.\nFix it beforehand, functools.partial(model, "
            f"{argument}=...), or rename the argument."
        )


class AugmentationError(ArgumentError):
    """A site cannot be augmented as asked."""

    @classmethod
    def of_site(cls, site: str, where: str, found: str, expected: str) -> AugmentationError:
        """What the site is, and what it would have to be."""
        return cls(f"Site '{site}' {found}   ({where}).\nExpected {expected}.")

    @classmethod
    def latent(cls, site: str, where: str, law: str, reason: str) -> AugmentationError:
        """The observation of the site is needed, and it has none."""
        expected = f"an observed site: {reason}. Give the site an observation, or leave it out of"
        return cls.of_site(site, where, f"is a latent {law}", f"{expected} augment")


class NotAFitError(ArgumentError):
    """Something else stands where a fit belongs; `caller` is what it was given to."""

    def __init__(self, caller: str, value: Any) -> None:
        super().__init__(
            f"{caller} got {type(value).__name__}.\nExpected a fit, as lb.fit(model, ...) returns."
        )


class NotSpreadError(ArgumentError):
    """Devices were asked for, and the rows of the model cannot be told apart."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"devices spreads the rows of the data, but {reason}.\n{remedy}")


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

    def __init__(self, estimator: str, wanted: str) -> None:
        super().__init__(
            f"This {estimator} is not fitted yet, so it has no {wanted}.\n"
            "Expected a call of fit (or partial_fit) first."
        )


class UnfittedModelError(ArgumentError):
    """A picture or an export was asked of a model that has no topics yet."""

    def __init__(self, caller: str, model: str, missing: str) -> None:
        super().__init__(
            f"{caller} got a {model} without `{missing}`.\n"
            "Expected a fitted topic model: call its fit first."
        )


class NoPredictorsError(ArgumentError):
    """A density is no sum of functions of linear predictors, given hyperparameters.

    `sites` are those that had better be hyperparameters too, where that may help; `meeting` are all
    those that are in the way.
    """

    def __init__(self, reason: str, sites: Sequence[str] = (), meeting: Sequence[str] = ()) -> None:
        super().__init__(
            f"lb.Integrated cannot read the program: {reason}.\nExpected a density that is a sum "
            "of functions of linear predictors, given up to fifteen hyperparameters, as mixed "
            'models have it. Use method="auto".'
        )
        self.reason, self.sites, self.meeting = reason, tuple(sites), tuple(meeting)
