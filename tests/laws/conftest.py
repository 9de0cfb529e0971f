"""Every law runs over every model of the zoo.

Fixtures live for the session, and pytest runs all laws of one model together, so each model is
derived and compiled once.
"""

import pytest

from tests.laws.derived import Derived, derive
from tests.laws.fitted import Fitted, fit_case
from tests.models.case import Case
from tests.models.zoo import CASES


@pytest.fixture(scope="session", params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture(scope="session")
def derived(case: Case) -> Derived:
    return derive(case)


@pytest.fixture(scope="session")
def fitted(case: Case) -> Fitted:
    return fit_case(case)
