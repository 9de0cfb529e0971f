"""Every law runs over every model of the zoo; in `make test`, over those that represent it.

Fixtures live for the session, and pytest runs all laws of one model together, so each model is
derived and compiled once.
"""

import pytest

from tests.laws.derived import Derived, derive
from tests.laws.fitted import Fitted, fit_case
from tests.models.case import Case
from tests.models.zoo import CASES, REPRESENTATIVES

EVERY = [
    pytest.param(
        case, id=case.name, marks=[] if case.name in REPRESENTATIVES else [pytest.mark.slow]
    )
    for case in CASES
]


@pytest.fixture(scope="session", params=EVERY)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture(scope="session")
def derived(case: Case) -> Derived:
    return derive(case)


@pytest.fixture(scope="session")
def fitted(case: Case) -> Fitted:
    return fit_case(case)
