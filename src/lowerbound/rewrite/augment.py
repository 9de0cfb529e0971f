"""Augmentation: a program with auxiliary latent sites, in which coordinate ascent is exact.

`augmented(function, {"y": "polya-gamma"})` is the same program with site 'y' rewritten: a latent
site "y:omega" stands beside it in the same plates, and integrating that out gives back the
original density. The bound of the rewritten program is never above that of the original one.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from numpyro.distributions import Distribution
from numpyro.primitives import Messenger

from lowerbound.errors import AugmentationError
from lowerbound.errors.wording import quoted
from lowerbound.model.user_lines import user_line
from lowerbound.rewrite.augmentations.allocation import (
    categorical_term,
    multinomial_counts,
    poisson_counts,
)
from lowerbound.rewrite.augmentations.behind import Past
from lowerbound.rewrite.augmentations.continuous import half_student, laplace, polya_gamma, student
from lowerbound.rewrite.augmentations.indicator import indicator
from lowerbound.rewrite.augmentations.log_sum import factor_indicator
from lowerbound.rewrite.augmentations.probit import truncated_normal
from lowerbound.rewrite.augmentations.site import Chosen
from lowerbound.rewrite.augmentations.softmax import bouchard, poisson

__all__ = ["AugmentationError", "augmented", "auxiliary_of", "decided", "possible"]

Rewriting = Callable[[Chosen], Distribution]

# An augmentation, its rewriting, and the distributions it is for; of one, the best first.
_REWRITINGS: Final[tuple[tuple[str, Rewriting, tuple[str, ...]], ...]] = (
    ("scale-mixture", student, ("StudentT", "Cauchy")),
    ("scale-mixture", laplace, ("Laplace",)),
    ("scale-mixture", half_student, ("HalfCauchy", "FoldedDistribution")),
    ("polya-gamma", polya_gamma, ("BernoulliLogits", "BinomialLogits", "NegativeBinomialLogits")),
    ("poisson", poisson, ("CategoricalLogits", "MultinomialLogits")),
    ("bouchard", bouchard, ("CategoricalLogits", "MultinomialLogits")),
    ("truncated-normal", truncated_normal, ("BernoulliProbs",)),
    ("indicator", indicator, ("MixtureSameFamily", "MixtureGeneral")),
    ("indicator", factor_indicator, ("Unit",)),
    ("indicator", categorical_term, ("CategoricalProbs",)),
    ("indicator", multinomial_counts, ("MultinomialProbs",)),
    ("indicator", poisson_counts, ("Poisson",)),
)
_KINDS: Final = dict.fromkeys(kind for _, _, kinds in _REWRITINGS for kind in kinds)
# Distribution -> augmentation -> its rewriting.
AUGMENTATIONS: Final[Mapping[str, Mapping[str, Rewriting]]] = MappingProxyType(
    {kind: {name: f for name, f, kinds in _REWRITINGS if kind in kinds} for kind in _KINDS}
)
_AUXILIARIES: Final = ("weight", "omega", "offset", "rate", "indicator", "latent", "counts")
# The bound of Jaakkola & Jordan (2000) is that of the optimal Pólya-Gamma factor.
ALIASES: Final = MappingProxyType(
    {
        "jaakkola-jordan": "polya-gamma",
        "albert-chib": "truncated-normal",
        "allocation": "indicator",
    }
)


def possible(kind: str) -> tuple[str, ...]:
    """The augmentations of a distribution class, best first.

    >>> possible("StudentT"), possible("Normal")
    (('scale-mixture',), ())
    """
    return tuple(AUGMENTATIONS.get(kind, ()))


def auxiliary_of(site: str) -> str | None:
    """The site that an auxiliary site was made for; None for a site of the program itself.

    >>> auxiliary_of("y:omega"), auxiliary_of("y")
    ('y', None)
    """
    original, separator, what = site.rpartition(":")
    return original if separator and what.rstrip("0123456789") in _AUXILIARIES else None


def augmented(function: Callable[..., Any], choices: Mapping[str, str]) -> Callable[..., Any]:
    """The program with the chosen sites rewritten; "none" leaves a site as it is.

    >>> import numpyro, numpyro.distributions as dist
    >>> def line(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    ...     with numpyro.plate("data", len(y)):
    ...         numpyro.sample("y", dist.StudentT(4.0, mu, 1.0), obs=y)
    >>> from lowerbound.model import trace_model
    >>> model = trace_model(augmented(line, {"y": "scale-mixture"}), ([0.1, 0.2],))
    >>> [(site.name, site.distribution, site.shape) for site in model.sites]
    [('mu', 'Normal', ()), ('y:weight', 'Gamma', (2,)), ('y', 'Normal', (2,))]
    """
    wanted = {site: ALIASES.get(name, name) for site, name in choices.items()}

    @functools.wraps(function)
    def program(*args: Any, **kwargs: Any) -> Any:
        augment = _Augment(wanted, Past(function, args, kwargs, {}))
        with augment:
            result = function(*args, **kwargs)
        for site in wanted:
            if site not in augment.seen:
                raise AugmentationError(
                    f"augment names the site '{site}', which the model does not have.\n"
                    f"Expected names among {', '.join(augment.seen)}."
                )
        return result

    program.decided = decided(function) | set(wanted)  # type: ignore[attr-defined]
    return program


def decided(function: Callable[..., Any]) -> frozenset[str]:
    """The sites of a program of which it is decided whether they are augmented, and how.

    >>> sorted(decided(augmented(augmented(print, {"y": "none"}), {"x": "polya-gamma"})))
    ['x', 'y']
    """
    return frozenset(getattr(function, "decided", ()))


class _Augment(Messenger):  # type: ignore[misc]
    """Rewrites the chosen sites as they are reached."""

    def __init__(self, choices: Mapping[str, str], past: Past) -> None:
        super().__init__()
        self.choices, self.past = choices, past
        self.seen: list[str] = []
        self.values: dict[str, Any] = {}

    def process_message(self, msg: dict[str, Any]) -> None:
        """Give a chosen site its auxiliary site and its law given that."""
        if msg["type"] != "sample" or auxiliary_of(msg["name"]) in self.choices:
            return
        name = msg["name"]
        self.seen.append(name)
        choice = self.choices.get(name, "none")
        if choice == "none":
            return
        past = replace(self.past, values=dict(self.values))
        site = Chosen.of(msg, user_line(sys._getframe(1)), past)
        kind = type(site.law).__name__
        rewriting = AUGMENTATIONS.get(kind, {}).get(choice)
        if rewriting is None:
            raise AugmentationError(_unsuitable(site, kind, choice))
        msg["fn"] = site.with_law(rewriting(site))

    def postprocess_message(self, msg: dict[str, Any]) -> None:
        """Note the values of latent sites."""
        if msg["type"] == "sample" and not msg["is_observed"]:
            self.values[msg["name"]] = msg["value"]


def _unsuitable(site: Chosen, kind: str, choice: str) -> str:
    known = {name for each in AUGMENTATIONS.values() for name in each}
    found = f"Site '{site.name}' is {kind}   ({site.where}); found augmentation '{choice}'"
    if possible(kind):
        return f"{found}.\nExpected {quoted((*possible(kind), 'none'))} for {kind}."
    if choice not in known:
        return f"{found}, which is none.\nExpected {quoted((*sorted(known), 'none'))}."
    kinds = ", ".join(kind for kind, each in AUGMENTATIONS.items() if choice in each)
    return (
        f"{found}, which is for {kinds}.\nExpected a site of such a distribution. Leave "
        f"'{site.name}' out of augment."
    )
