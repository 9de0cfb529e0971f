"""Data for the examples and the tests: small, bundled, and available offline.

`paper_mixture` simulates the study of section 3.4 of the paper (fig:gmm_2d).
`basketball_drive`, `dogs`, `earnings`, `eight_schools`, `kidiq`, `lynx_hare`, `seeds` and `wells`
are studies of posteriordb (BSD-3-Clause, see README.md here). These return a dict of NumPy arrays,
most of which can be passed on as the arguments of a model.
`debian_descriptions` is a corpus: the words of 3,000 descriptions of Debian packages, counted.

>>> lb.data.eight_schools()["y"].tolist()
[28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from lowerbound.data.posteriordb import (
    BasketballDrive,
    Dogs,
    Earnings,
    EightSchools,
    KidIQ,
    LynxHare,
    Seeds,
    Wells,
    basketball_drive,
    dogs,
    earnings,
    eight_schools,
    kidiq,
    lynx_hare,
    seeds,
    wells,
)
from lowerbound.errors import SettingError

__all__ = [
    "BasketballDrive",
    "DebianDescriptions",
    "Dogs",
    "Earnings",
    "EightSchools",
    "KidIQ",
    "LynxHare",
    "Mixture",
    "Seeds",
    "Wells",
    "basketball_drive",
    "debian_descriptions",
    "dogs",
    "earnings",
    "eight_schools",
    "kidiq",
    "lynx_hare",
    "paper_mixture",
    "seeds",
    "wells",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

COMPONENTS = 5  # K of the paper's simulation
SEPARATION = 2.0  # the projections of two components' ellipses of this many sd do not overlap


class Mixture(TypedDict):
    """A sample of a two-dimensional Gaussian mixture and the values that generated it."""

    x: FloatArray
    labels: IntArray
    weights: FloatArray
    means: FloatArray
    covariances: FloatArray


class DebianDescriptions(NamedTuple):
    """A corpus of short documents, as counts of its words."""

    counts: Any  # SciPy sparse rows (documents, words) of whole numbers
    words: NDArray[np.object_]  # the words of the columns, in alphabetical order


def paper_mixture(seed: int = 0, n: int = 1000) -> Mixture:
    """Draw n points of five Gaussians with random means, covariances and assignments.

    This is the simulation study of section 3.4 of the paper (sec:gaussian-study, fig:gmm_2d). The
    means are drawn again until the components are well separated: along the line that joins two
    means, their distance is at least 2 (sd_j + sd_k). The same seed gives the same data.

    Shapes, with K = 5: x (n, 2); labels (n,), integers below K; weights (K,); means (K, 2);
    covariances (K, 2, 2).

    >>> data = paper_mixture(seed=0, n=200)
    >>> data["x"].shape, data["means"].shape
    ((200, 2), (5, 2))
    """
    if n < COMPONENTS:
        raise SettingError("paper_mixture", "n", n, f"at least {COMPONENTS}")
    random = np.random.default_rng(seed)
    weights = random.dirichlet(np.full(COMPONENTS, 10.0))
    covariances = np.stack([_random_covariance(random) for _ in range(COMPONENTS)])
    means = random.uniform(-8.0, 8.0, (COMPONENTS, 2))
    while not _separated(means, covariances):
        means = random.uniform(-8.0, 8.0, (COMPONENTS, 2))
    labels = random.choice(COMPONENTS, size=n, p=weights)
    noise = random.standard_normal((n, 2))
    x = means[labels] + np.einsum("nij,nj->ni", np.linalg.cholesky(covariances)[labels], noise)
    return Mixture(x=x, labels=labels, weights=weights, means=means, covariances=covariances)


def debian_descriptions() -> DebianDescriptions:
    """Words of 3,000 descriptions of Debian packages, in random order: some 30 tokens each.

    Lower-case words of three or more letters without stop words; a word is kept if it occurs in
    five or more of the descriptions. Shapes: counts (3000, 2834), words (2834,).

    >>> counts, words = debian_descriptions()
    >>> counts.shape, int(counts.sum()), str(words[1000])
    ((3000, 2834), 88732, 'folders')
    """
    from scipy.sparse import csr_array

    with (
        files(__name__).joinpath("debian_descriptions.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as stored,
    ):
        entries = stored["data"].astype(np.int32), stored["indices"].astype(np.int32)
        counts = csr_array((*entries, stored["indptr"]), shape=tuple(stored["shape"]))
        return DebianDescriptions(counts, stored["words"].astype(object))


def _random_covariance(random: np.random.Generator) -> FloatArray:
    """Draw R diag(sd^2) R', with a uniform rotation R and sd between 0.4 and 1.4, shape (2, 2)."""
    angle = random.uniform(0.0, np.pi)
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    scales = random.uniform(0.4, 1.4, 2)
    covariance: FloatArray = rotation @ np.diag(scales**2) @ rotation.T
    return covariance


def _separated(means: FloatArray, covariances: FloatArray) -> bool:
    """Whether every two components are at least SEPARATION (sd_j + sd_k) apart."""
    for j in range(len(means)):
        for k in range(j):
            gap = means[j] - means[k]
            distance = np.linalg.norm(gap)
            u = gap / distance
            spread = sum(np.sqrt(u @ covariances[i] @ u) for i in (j, k))
            if distance < SEPARATION * spread:
                return False
    return True
