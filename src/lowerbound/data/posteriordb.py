"""Studies of posteriordb (BSD-3-Clause, see README.md here), as columns with names.

In: nothing. Out: a dict of NumPy arrays, one function for each study.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from typing import Any, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
_Study = TypeVar("_Study")
FIRST_YEAR = 1900  # of the pelts


class EightSchools(TypedDict):
    """Estimated effects of coaching in eight schools, with their standard errors."""

    y: FloatArray
    sigma: FloatArray


class KidIQ(TypedDict):
    """Test scores of 434 children, with their mothers' education and IQ."""

    kid_score: FloatArray
    mom_hs: FloatArray
    mom_iq: FloatArray


class Wells(TypedDict):
    """Whether 3,020 households changed to another well, and what they knew of theirs."""

    switched: FloatArray
    arsenic: FloatArray
    dist: FloatArray
    assoc: FloatArray
    educ: FloatArray


class Earnings(TypedDict):
    """Earnings, heights and sexes of 1,192 people."""

    earn: FloatArray
    height: FloatArray
    male: FloatArray


class LynxHare(TypedDict):
    """Pelts of hares and lynxes in 21 years."""

    year: FloatArray
    pelts: FloatArray


class Seeds(TypedDict):
    """How many seeds germinated on 21 plates, of two varieties in two extracts of roots."""

    germinated: FloatArray
    seeds: FloatArray
    variety: FloatArray
    extract: FloatArray


class Dogs(TypedDict):
    """Whether each of 30 dogs got a shock in each of 25 trials."""

    shocked: FloatArray


class BasketballDrive(TypedDict):
    """A player with the ball, frame by frame: the reciprocal of his speed, his way to the hoop."""

    slowness: FloatArray
    distance: FloatArray


def eight_schools() -> EightSchools:
    """Estimated coaching effects y and standard errors sigma of eight schools (Rubin, 1981).

    Shapes: y (8,), sigma (8,).

    >>> eight_schools()["y"]
    array([28.,  8., -3.,  7., -1.,  1., 18., 12.])
    """
    return _study(EightSchools, "eight_schools.json")


def kidiq() -> KidIQ:
    """Cognitive test scores of children and two facts about their mothers (Gelman and Hill, 2007).

    `kid_score` is the child's score, `mom_hs` is 1 if the mother finished high school and 0
    otherwise, `mom_iq` is the mother's IQ. Shapes: (434,) each.

    >>> kidiq()["kid_score"].mean().round(2)
    np.float64(86.8)
    """
    return _study(KidIQ, "kidiq.json")


def wells() -> Wells:
    """Households in Bangladesh whose well has too much arsenic (Gelman and Hill, 2007).

    `switched` is 1 if the household later used another well; `arsenic` is its concentration in
    hundreds of micrograms a litre, `dist` the metres to the nearest safe well, `assoc` whether
    somebody is active in an association, `educ` the years of school. Shapes: (3020,) each.

    >>> wells()["switched"].mean().round(3)
    np.float64(0.575)
    """
    return _study(Wells, "wells.json")


def earnings() -> Earnings:
    """Yearly earnings in dollars, height in inches, and 1 for men (Gelman and Hill, 2007).

    Shapes: (1192,) each.

    >>> float(earnings()["earn"].max())
    200000.0
    """
    return _study(Earnings, "earnings.json")


def lynx_hare() -> LynxHare:
    """Pelts, in thousands, that the Hudson's Bay Company took in from 1900 to 1920.

    Shapes: year (21,); pelts (21, 2), of hares and of lynxes.

    >>> lynx_hare()["pelts"][0]
    array([30.,  4.])
    """
    columns = _read("lynx_hare.json")
    pelts = np.vstack([columns["y_init"], columns["y"]])
    return LynxHare(year=FIRST_YEAR + np.arange(len(pelts), dtype=np.float64), pelts=pelts)


def seeds() -> Seeds:
    """Germination of Orobanche seeds on plates (Crowder, 1978; an example of BUGS).

    `variety` is 0 for O. aegyptiaca 75 and 1 for 73, `extract` 0 for bean and 1 for cucumber.
    Shapes: (21,) each.

    >>> int(seeds()["germinated"].sum()), int(seeds()["seeds"].sum())
    (424, 831)
    """
    return _study(Seeds, "seeds.json", germinated="n", seeds="N", variety="x1", extract="x2")


def dogs() -> Dogs:
    """Trials in which dogs learn to avoid a shock (Solomon and Wynne, 1953).

    `shocked` is 1 where the dog did not jump in time. Shape: (30, 25).

    >>> dogs()["shocked"].mean(axis=0)[[0, 24]].round(2)
    array([1.  , 0.03])
    """
    return _study(Dogs, "dogs.json", shocked="y")


def basketball_drive() -> BasketballDrive:
    """One possession of a basketball game, from tracking data (I. Ali, 2019; a Stan case study).

    `slowness` is the reciprocal of the player's speed, `distance` his distance to the hoop in feet.
    Shapes: (416,) each.

    >>> basketball_drive()["distance"][[0, -1]].round(1)
    array([48.9,  8.7])
    """
    return _study(BasketballDrive, "basketball_drive.json", slowness="u", distance="v")


def _study(kind: Callable[..., _Study], name: str, **stored: str) -> _Study:
    """The columns of a bundled file that a study has; `stored`: the names there, where others."""
    columns = _read(name)
    return kind(**{own: columns[stored.get(own, own)] for own in kind.__annotations__})


def _read(name: str) -> dict[str, Any]:
    """The columns of a bundled JSON file as float64 arrays."""
    text = files("lowerbound.data").joinpath(name).read_text(encoding="utf-8")
    return {key: np.asarray(value, np.float64) for key, value in json.loads(text).items()}
