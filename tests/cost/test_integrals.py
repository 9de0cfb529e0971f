"""What integrals over hyperparameters are counted at: solutions, steps of these, levels."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.cost import USUAL
from lowerbound.ladder.costs import work_of
from lowerbound.ladder.factor_work import solutions
from lowerbound.methods.hierarchy.hierarchies import Hierarchy
from lowerbound.methods.hierarchy.inner.given_hyperparameters import GivenHyperparameters
from lowerbound.methods.hierarchy.inner.parabolas import Parabolas
from lowerbound.run.problem import Problem

RNG = np.random.default_rng(4)
GROUP = RNG.integers(0, 12, 150)
X = RNG.normal(size=150)
Y = RNG.normal(0.5, 0.6, 12)[GROUP] + RNG.normal(-0.3, 0.4, 12)[GROUP] * X
Y = Y + RNG.normal(0.0, 0.5, 150)
HITS = (RNG.uniform(size=150) < 1.0 / (1.0 + np.exp(-Y))).astype(int)


def fixed(group, hits):
    """What the effects mean does not move with their scales."""
    scales = numpyro.sample("scales", dist.HalfNormal(1.0).expand([2]).to_event(1))
    with numpyro.plate("groups", 12):
        effect = numpyro.sample("effect", dist.Normal(0.0, scales[0]))
        other = numpyro.sample("other", dist.Normal(0.0, scales[1]))
    with numpyro.plate("rows", len(hits)):
        numpyro.sample("hits", dist.Bernoulli(logits=effect[group] + other[group] * X), obs=hits)


def moving(group, hits):
    """The same, non-centred: it does."""
    scales = numpyro.sample("scales", dist.HalfNormal(1.0).expand([2]).to_event(1))
    with numpyro.plate("groups", 12):
        effect = numpyro.sample("effect", dist.Normal(0.0, 1.0))
        other = numpyro.sample("other", dist.Normal(0.0, 1.0))
    logits = scales[0] * effect[group] + scales[1] * other[group] * X
    with numpyro.plate("rows", len(hits)):
        numpyro.sample("hits", dist.Bernoulli(logits=logits), obs=hits)


@pytest.mark.parametrize("program", [fixed, moving])
def test_the_solutions_of_an_integral_are_those_foretold_within_a_factor_of_two(
    program, monkeypatch
):
    """Where the meaning of z moves with theta a fit takes three times as many."""
    counts = [0]
    for kind in (GivenHyperparameters, Parabolas):
        plain = kind.__call__

        def counted(self, *args, plain=plain):
            counts[0] += 1
            return plain(self, *args)

        monkeypatch.setattr(kind, "__call__", counted)
    method = lb.Integrated()
    with jax.enable_x64(True):
        found, _ = solutions(Hierarchy(Problem(program, (GROUP, HITS)), method), method)
    lb.fit(program, GROUP, HITS, method=method)
    assert 0.5 < counts[0] / found < 2.0


def levels(y):
    """A walk that is written as a loop: its increments are made of levels at every point."""
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    step = numpyro.sample("step", dist.Normal(0.0, 1.0).expand([len(y)]).to_event(1))

    def onward(level, e):
        level = 0.9 * level + scale * e
        return level, level

    _, level = jax.lax.scan(onward, jnp.zeros(()), step)
    numpyro.sample("y", dist.Poisson(jnp.exp(level)).to_event(1), obs=y)


def test_levels_cost_the_square_of_their_number_at_every_point():
    with jax.enable_x64(True):
        short, long = (
            work_of(Problem(levels, (RNG.poisson(1.0, n),)), lb.Integrated()) for n in (50, 200)
        )
    assert long.numbers > 1.4 * short.numbers


def growth(group, y):
    """The size and the rate of a group meet in every row."""
    scales = numpyro.sample("scales", dist.HalfNormal(0.5).expand([2]).to_event(1))
    with numpyro.plate("groups", 12):
        size = numpyro.sample("size", dist.Normal(0.0, scales[0]))
        rate = numpyro.sample("rate", dist.Normal(0.0, scales[1]))
    with numpyro.plate("rows", len(y)):
        expected = jnp.exp(size[group]) * jnp.tanh(rate[group] * X)
        numpyro.sample("y", dist.Normal(expected, 0.5), obs=y)


def test_predictors_that_meet_leave_open_how_long_their_solutions_take(capsys):
    plan = lb.explain(growth, GROUP, Y)
    assert plan.method.startswith("Integrated")
    assert plan.work.within > USUAL
    together = replace(plan.work, within=1.0).cost
    least, most = plan.cost.range
    assert least < together.seconds < most
    printed = capsys.readouterr().out
    assert f"Expected: {plan.cost}, compilation included." in printed
