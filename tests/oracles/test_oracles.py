"""The oracles agree with themselves: bounds climb, never pass the evidence, and meet it."""

from itertools import islice

import numpy as np
import pytest

from tests.models import test_univariate_mixture as univariate
from tests.models import test_wishart_mixture as wishart
from tests.models import zoo
from tests.oracles.components import DirichletProbabilities, GammaRate, NormalGamma

WITH_ORACLE = [case for case in zoo.CASES if case.oracle is not None]
# How much of a start the small arguments need: leading sizes by case and site.
SMALL = {
    "univariate_mixture": {"mu": 2},
    "diagonal_mixture": {"pi": 2, "mu": 2, "tau": 2},
    "factorial_mixture": {"a": 5},
    "lda": {"theta": 2},
    "mixed_membership_blockmodel": {"theta": 3, "send": 6},
}
COMPONENTS = {
    "unit_normal": (univariate.COMPONENT, lambda rng: rng.normal(size=9)),
    "normal_gamma": (NormalGamma(0.4, 0.7, 1.3, 2.1), lambda rng: rng.normal(size=(9, 2))),
    "normal_wishart": (wishart.COMPONENT, lambda rng: rng.normal(size=(9, 2))),
    "poisson": (GammaRate(1.5, 0.5, True, "rate"), lambda rng: rng.poisson(3.0, size=(9, 2))),
    "exponential": (GammaRate(1.5, 0.5, False, "rate"), lambda rng: rng.exponential(size=9)),
    "categorical": (
        DirichletProbabilities((0.5, 1.0, 2.0)),
        lambda rng: rng.integers(3, size=(9, 2)),
    ),
}


def ids(case):
    return case.name


@pytest.mark.parametrize("case", WITH_ORACLE, ids=ids)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_hand_written_sweeps_climb(case, seed):
    args, kwargs = case.arguments(seed)
    steps = islice(case.oracle(case.start(seed), *args, **kwargs), 30)
    elbo = np.array([step.elbo for step in steps])
    assert np.isfinite(elbo).all()
    assert (np.diff(elbo) >= -1e-11 * np.abs(elbo[1:])).all()


@pytest.mark.parametrize("case", [c for c in WITH_ORACLE if c.evidence is not None], ids=ids)
def test_hand_written_bound_stays_below_the_evidence(case):
    args, kwargs = (case.small or case.arguments)(0)
    start = case.start(0)
    start |= {site: start[site][:size] for site, size in SMALL.get(case.name, {}).items()}
    *_, last = islice(case.oracle(start, *args, **kwargs), 30)
    gap = case.evidence(*args, **kwargs) - last.elbo
    # The gap is a divergence: positive, and on data this small no poor optimum makes it large.
    assert 0 < gap < 10


@pytest.mark.parametrize("name", COMPONENTS)
def test_one_component_meets_its_evidence(name):
    component, draw = COMPONENTS[name]
    x = draw(np.random.default_rng(3))
    q = component.posterior(np.ones((len(x), 1)), x)
    elbo = component.log_density(component.statistics(q), x).sum() - component.kl(q)
    assert elbo == pytest.approx(component.evidence(x), rel=1e-12)
