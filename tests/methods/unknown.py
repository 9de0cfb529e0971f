"""Settings that a method does not know: each is an error, of `fit` and of `explain` alike."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

import lowerbound as lb
from tests.methods import zoo
from tests.methods.zoo import Example


@dataclass(frozen=True, eq=False)
class Case:
    """A method with a setting that should be refused, or should show."""

    name: str
    method: Any
    example: Example
    lacks: Mapping[str, str] = field(default_factory=dict)


BEGUN = lb.SVI(batch_size=8, details=lb.Details(init={"nowhere": 0.0}))
BLOCKED = lb.SVI(batch_size=8, details=lb.Details(blocks=[("nowhere",)]))
ABROAD = lb.Augmented({"nowhere": "polya-gamma"}, lb.SVI(batch_size=8))
UNSEEN = "explain does not look at it"
NOWHERE = {"nowhere": 0.0}
UNKNOWN = (
    Case("CAVI, init", lb.CAVI(init=NOWHERE), zoo.LINE),
    Case("CAVI, blocks", lb.CAVI(blocks=[("nowhere",)]), zoo.LINE),
    Case("CAVI, condition", lb.Given(("nowhere",)), zoo.SCHOOLS),
    Case(
        "CAVI, condition, init",
        lb.Given(("tau",), lb.CAVI(init=NOWHERE)),
        zoo.SCHOOLS,
    ),
    Case("CAVI, augment", lb.Augmented({"nowhere": "polya-gamma"}, lb.CAVI()), zoo.LOGISTIC),
    Case("CAVI, parameters, init", lb.CAVI(init=NOWHERE), zoo.SHRUNK),
    Case("CAVI, parameters, blocks", lb.CAVI(blocks=[("nowhere",)]), zoo.SHRUNK),
    Case("SVI, init", lb.SVI(batch_size=8, details=lb.Details(init=NOWHERE)), zoo.CLUSTERS),
    Case(
        "SVI, blocks", lb.SVI(batch_size=8, details=lb.Details(blocks=[("nowhere",)])), zoo.CLUSTERS
    ),
    Case("SVI, augment", ABROAD, zoo.LOGISTIC),
    Case("SVI, plate", lb.SVI(batch_size=8, plate="nowhere"), zoo.CLUSTERS),
    Case("Gaussian, init", lb.Gaussian(init=NOWHERE), zoo.BEND),
    Case(
        "Gaussian, condition",
        lb.Given(("nowhere",), lb.Gaussian()),
        zoo.SCHOOLS,
    ),
    Case(
        "Gaussian, condition, init",
        lb.Given(("tau",), lb.Gaussian(init=NOWHERE)),
        zoo.SCHOOLS,
    ),
    Case("Gaussian, sites", lb.Over(("nowhere",)), zoo.SPIKES),
    Case(
        "Gaussian, sites, init",
        lb.Over(("rate",), lb.Gaussian(init=NOWHERE)),
        zoo.SPIKES,
    ),
    Case("Gaussian, noncentred", lb.Gaussian(noncentred=("nowhere",)), zoo.SCHOOLS),
    Case(
        "Gaussian, score, init",
        lb.ScoreFunctions(init=NOWHERE),
        zoo.SWITCHES,
    ),
    Case(
        "Gaussian, summed out, init",
        lb.Gaussian(init=NOWHERE),
        zoo.TAILS,
    ),
    Case("EM, init", lb.EM(init=NOWHERE), zoo.DECODER),
)


def cases(rows: Iterable[Case], capability: str) -> list[Any]:
    """The parameters of a test, those that lack the capability marked."""
    return [
        pytest.param(
            case,
            id=case.name,
            marks=[pytest.mark.xfail(strict=True, reason=case.lacks[capability])]
            if capability in case.lacks
            else [],
        )
        for case in rows
    ]
