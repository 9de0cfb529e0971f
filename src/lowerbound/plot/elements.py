"""The numbers that a picture shows: draws of one or several densities, and the choice of some.

A posterior may have two numbers or two million. A picture takes those in which the densities differ
most; of a single density those that stand out among the others of their site. It says how many it
leaves out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowerbound.errors import ArgumentError, NotAFitError, SettingError, UnknownSiteError
from lowerbound.errors.wording import entry_of
from lowerbound.result.fitted import Fit

MOST_NUMBERS = 2_000_000  # in all draws of one density: of small shapes a million takes seconds
FEWEST = 100  # draws
SURE = 3.0  # standard errors, about, of a difference that is no noise
APART = 1e-6  # a weight that puts any difference first
FEW_NUMBERS = 20  # of the rows, that are shown with what rows share

Draws = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Layers:
    """Draws of the same sites by the name of their density, that of the fit first.

    Each is (draws, numbers) for every site.
    """

    draws: dict[str, dict[str, np.ndarray]]
    shapes: dict[str, tuple[int, ...]]

    @property
    def names(self) -> list[str]:
        """Those of the densities."""
        return list(self.draws)

    @property
    def several(self) -> bool:
        """Whether there is something to compare with."""
        return len(self.draws) > 1

    def of(self, element: Element) -> dict[str, np.ndarray]:
        """The draws of one number by density."""
        return {name: own[element.site][:, element.place] for name, own in self.draws.items()}

    def elements(self, site: str) -> list[Element]:
        """The numbers of a site, with the score by which pictures choose."""
        shape = self.shapes[site]
        scores = self._scores(site)
        return [
            Element(entry_of(site, index), site, place, float(scores[place]))
            for place, index in enumerate(np.ndindex(*shape))
        ]

    def _scores(self, site: str) -> np.ndarray:
        """How far the densities are apart beyond the noise of draws; then how much q stands out."""
        first, *others = (own[site].astype(float) for own in self.draws.values())
        mean, sd = first.mean(axis=0), _spread(first)
        found: np.ndarray = APART * np.abs(mean - np.median(mean)) / sd
        found = np.minimum(found, 0.99)
        apart = np.zeros_like(found)
        # The largest of m errors is about sqrt(2 log m) standard errors.
        sure = max(SURE, 1.5 + np.sqrt(2 * np.log(len(mean))))
        for other in others:
            wide, noise = _spread(other), sure / np.sqrt(min(len(first), len(other)))
            shift = np.abs(mean - other.mean(axis=0)) / wide - 1.5 * noise
            apart = np.maximum(apart, np.clip(shift, 0, None))
            apart = np.maximum(apart, np.clip(np.abs(np.log(sd / wide)) - 1.2 * noise, 0, None))
        return np.where(apart > 0, 1 + apart, found)

    def why(self, shown: Iterable[Element]) -> str:
        """By what elements were chosen, in words."""
        if any(one.score >= 1 for one in shown):
            return "where the densities differ most"
        return "those that stand out most" + ("; the densities agree" if self.several else "")


def _spread(draws: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        sd = draws.std(axis=0)
    moves = np.isfinite(sd) & (sd > 0)
    return np.where(moves, sd, sd[moves].min() if moves.any() else np.inf)


@dataclass(frozen=True)
class Element:
    """One number of a site."""

    label: str
    site: str
    place: int
    score: float


def chosen(elements: Sequence[Element], most: int) -> list[Element]:
    """At most so many elements, of every site some, in their own order."""
    if len(elements) <= most:
        return list(elements)
    first: dict[str, Element] = {}
    for one in sorted(elements, key=lambda e: -e.score):
        first.setdefault(one.site, one)
    heads = sorted(first.values(), key=lambda e: -e.score)[:most]
    rest = sorted((e for e in elements if e not in heads), key=lambda e: -e.score)
    kept = {one.label for one in [*heads, *rest[: most - len(heads)]]}
    return [one for one in elements if one.label in kept]


def left_out(shown: int, total: int, why: str) -> str:
    """What a picture does not show, in words; nothing where it shows all."""
    return "" if shown == total else f"{shown:,} of {total:,} numbers: {why}."


# --------------------------------------------------------------------------------------------------
# Draws of what a user hands over


def check_least(caller: str, least: int, **settings: Any) -> None:
    """Raise where a setting is no integer of at least so much."""
    for name, value in settings.items():
        if not isinstance(value, int | np.integer) or value < least:
            raise SettingError(caller, name, value, f"an integer of at least {least}")


def layers_of(
    caller: str, fit: Fit, sites: Sequence[str] | None, draws: int, over: Any = None
) -> Layers:
    """The draws of a fit, and of what is laid over it, of the same sites.

    over: a fit, draws by site, or several of these by name.
    """
    if not isinstance(fit, Fit):
        raise NotAFitError(caller, fit)
    check_least(caller, FEWEST, draws=draws)
    others = _named(caller, over)
    names = site_names(caller, fit, sites)
    own = sampled(caller, fit, names, draws)
    shapes = {name: np.shape(own[name])[1:] for name in names}
    # Sites that only some of the densities have are the fit's alone.
    if others and sites is None:
        names = [name for name in names if all(name in _known(one) for one in others.values())]
        if not names:
            raise ArgumentError(
                f"{caller} got nothing to lay over {', '.join(shapes)}: the others have none of "
                "them.\nExpected draws of the same sites."
            )
    found: dict[str, dict[str, np.ndarray]] = {"q": _flat(own, names)}
    for name, one in others.items():
        drawn = sampled(caller, one, names, draws) if isinstance(one, Fit) else one
        for site in names:
            if site not in drawn or np.shape(drawn[site])[1:] != shapes[site]:
                got = "none" if site not in drawn else f"shape {np.shape(drawn[site])[1:]}"
                raise ArgumentError(
                    f"{caller} got draws '{name}' of site '{site}' with {got}.\n"
                    f"Expected an array of draws, each of shape {shapes[site]}."
                )
        found[name] = _flat(drawn, names)
    return Layers(found, {name: shapes[name] for name in names})


def _flat(drawn: Draws, names: Iterable[str]) -> dict[str, np.ndarray]:
    return {name: np.asarray(drawn[name]).reshape(len(drawn[name]), -1) for name in names}


def _named(caller: str, over: Any) -> dict[str, Fit | Draws]:
    """What is laid over a fit, by name."""
    if over is None:
        return {}
    if isinstance(over, Fit):
        return {short_name(over): over}
    if isinstance(over, Mapping) and over:
        values = list(over.values())
        if all(isinstance(one, Fit | Mapping) for one in values):
            return {str(name): one for name, one in over.items()}
        if not any(isinstance(one, Fit | Mapping) for one in values):
            return {"draws": over}
    raise ArgumentError(
        f"{caller} got over={type(over).__name__}.\nExpected a fit, draws by site (as NumPyro's "
        'MCMC.get_samples() gives them), or several of these by name: {"NUTS": draws}.'
    )


def _known(one: Fit | Draws) -> set[str]:
    return set(one.sites) if isinstance(one, Fit) else set(one)


def short_name(fit: Fit) -> str:
    """What a legend calls a fit: its correction, or its method.

    >>> short_name(lb.fit(coin, y))
    'CAVI'
    """
    corrected = (
        re.search(r"'([\w-]+)'\)$", fit.method) if fit.method.startswith("correct") else None
    )
    return corrected[1] if corrected else fit.method.partition("(")[0]


def site_names(caller: str, fit: Fit, sites: Sequence[str] | None) -> list[str]:
    """The sites that were named, or those outside the data plate and small ones in it."""
    if isinstance(sites, str):
        sites = [sites]
    if sites is not None:
        if not sites:
            raise SettingError(caller, "sites", sites, "names of sites, or None")
        return list(sites)
    shared = [name for name, record in fit.sites.items() if _is_shown(record)]
    names = list(fit.own_sites(dict.fromkeys(shared or fit.sites)))
    if not names:
        raise ArgumentError(f"{caller} got a fit without latent sites.\nExpected some to draw.")
    return names


def _is_shown(record: Mapping[str, Any]) -> bool:
    """Whether a site is shown without being named: all that rows share, and few numbers of rows."""
    few = int(np.prod(record["shape"])) <= FEW_NUMBERS and record["support_values"] is None
    return bool(record["scope"] == "global" or few)


def sampled(caller: str, fit: Fit, names: Sequence[str], draws: int) -> dict[str, np.ndarray]:
    """Draws of some sites, fewer of very large ones."""
    latent = [name for name in names if name in fit.sites]
    size = sum(int(np.prod(fit.sites[name]["shape"])) for name in latent)
    count = int(np.clip(MOST_NUMBERS // max(size, 1), FEWEST, draws))
    if len(latent) == len(names):
        return fit.sample(count, sites=latent)
    found = fit.sample(count)
    for name in names:
        if name not in found:
            known = tuple(found)
            raise UnknownSiteError(f"{caller} got the site", name, known, "is no site of the fit")
    return {name: found[name] for name in names}
