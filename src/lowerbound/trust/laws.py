"""Student laws around the summits of a posterior, that draws are proposed from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from lowerbound.trust.weighing import Weighted

FREEDOM = 5.0  # degrees of freedom: heavier than any posterior of interest
ALIKE = 0.5  # of the draws, that all summits have alike: one may have more mass than it seems

BROAD, EM_STEPS = 0.1, 4  # mass of the law that is parted, beside its parts; steps to find these

Place = tuple[np.ndarray, np.ndarray]  # a location, and the root of a covariance


@dataclass(frozen=True, eq=False)
class Law:
    """A mixture of Student laws, one at every place."""

    places: tuple[Place, ...]
    shares: np.ndarray

    @classmethod
    def at(cls, places: Sequence[Place], masses: Sequence[float] = (1.0,)) -> Law:
        """The law that has about these masses at its places."""
        given = np.asarray(masses, float)
        shares = (1.0 - ALIKE) * given / given.sum() + ALIKE / len(given)
        return cls(tuple(places), shares)

    def drawn(self, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draws, and the log density at them."""
        counts = np.floor(self.shares * count).astype(int)
        counts[0] += count - counts.sum()
        parts = [
            _student(place, number, rng) for place, number in zip(self.places, counts, strict=True)
        ]
        vectors = np.concatenate(parts)
        return vectors, logsumexp(self._by_place(vectors, counts / count), axis=0)

    def parted(self, found: Weighted, parts: int, rng: np.random.Generator) -> Law:
        """The law, beside as many narrower ones as follow the bends of weighted draws."""
        weights = np.exp(found.log_weights)
        (whole,) = self.places
        z = np.linalg.solve(whole[1], (found.vectors - whole[0]).T).T
        own = _nearest_of(_spread_out(z, weights, parts, rng), z)
        law, lean = self, whole[1] @ whole[1].T
        for _ in range(EM_STEPS):
            pairs = [(_moments(found.vectors, share * weights, lean), share) for share in own]
            places = [(place, float(share @ weights)) for place, share in pairs if place]
            law = Law.at([whole, *(p for p, _ in places)], [BROAD, *(m for _, m in places)])
            by_place = law._by_place(found.vectors, law.shares)[1:]
            own = np.exp(by_place - logsumexp(by_place, axis=0))
        return law

    def _by_place(self, vectors: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """The log density of every part with its share, (places, draws)."""
        with np.errstate(divide="ignore"):
            parts = [
                math.log(share) + _log_student(place, vectors) if share else -np.inf
                for place, share in zip(self.places, shares, strict=True)
            ]
        return np.stack([np.broadcast_to(part, len(vectors)) for part in parts])

    def moved(self, found: Weighted, prior: np.ndarray) -> Law | None:
        """The law with the moments of weighted draws, place by place; None where they have none.

        Few draws lean on a covariance: `prior` where there is one place, else that of the place.
        """
        weights = np.exp(found.log_weights)
        if not len(weights):
            return None
        by_place = self._by_place(found.vectors, self.shares)
        own = np.exp(by_place - logsumexp(by_place, axis=0)) * weights
        places, masses = [], []
        for share, place in zip(own, self.places, strict=True):
            lean = prior if len(self.places) == 1 else place[1] @ place[1].T
            new = _moments(found.vectors, share, lean)
            if new is None and len(self.places) == 1:
                return None
            places.append(place if new is None else new)
            masses.append(float(share.sum()))
        return Law.at(places, masses)


def _spread_out(
    z: np.ndarray, weights: np.ndarray, count: int, rng: np.random.Generator
) -> np.ndarray:
    """Some of the draws, each far from those before it."""
    chosen = [z[rng.choice(len(z), p=weights)]]
    while len(chosen) < count:
        near = ((z[:, None] - np.array(chosen)) ** 2).sum(axis=-1).min(axis=1) * weights
        chosen.append(z[rng.choice(len(z), p=near / near.sum())])
    return np.array(chosen)


def _nearest_of(centres: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Which of the centres each draw is nearest to, (centres, draws)."""
    nearest = ((z[:, None] - centres) ** 2).sum(axis=-1).argmin(axis=1)
    found: np.ndarray = (nearest == np.arange(len(centres))[:, None]).astype(float)
    return found


def _moments(vectors: np.ndarray, weights: np.ndarray, lean: np.ndarray) -> Place | None:
    """Location and root of the covariance of weighted draws; few of them lean on another."""
    mass, dimension = weights.sum(), vectors.shape[1]
    if not mass > 0:
        return None
    size = mass**2 / (weights**2).sum()
    weights = weights / mass
    mean = weights @ vectors
    centred = vectors - mean
    part = dimension / (dimension + size)
    try:
        covariance = (1 - part) * (centred.T * weights) @ centred + part * lean
        return mean, np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return None


def _freedom(dimension: int) -> float:
    return max(FREEDOM, dimension / 2)


def _student(place: Place, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draws of a Student law."""
    loc, root = place
    freedom = _freedom(len(loc))
    normal = rng.standard_normal((count, len(loc)))
    stretch = np.sqrt(freedom / rng.chisquare(freedom, count))
    vectors: np.ndarray = loc + (normal * stretch[:, None]) @ root.T
    return vectors


def _log_student(place: Place, vectors: np.ndarray) -> np.ndarray:
    """Its log density."""
    loc, root = place
    dimension = len(loc)
    freedom = _freedom(dimension)
    distance = (np.linalg.solve(root, (vectors - loc).T) ** 2).sum(axis=0)
    log_law: np.ndarray = (
        math.lgamma((freedom + dimension) / 2)
        - math.lgamma(freedom / 2)
        - 0.5 * dimension * math.log(freedom * math.pi)
        - np.log(np.diagonal(root)).sum()
        - 0.5 * (freedom + dimension) * np.log1p(distance / freedom)
    )
    return log_law
