"""Elements of a factor that meet in a term take turns: as few as there may be."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan

import lowerbound as lb
from lowerbound.ascent.turns import turns
from lowerbound.joint import multi_affine
from lowerbound.model import trace_model

RNG = np.random.default_rng(0)
Y = RNG.normal(size=(9, 4))


def second_order(y):
    """Four series whose states depend on the two before."""
    p = numpyro.sample("p", dist.Dirichlet(jnp.ones((2, 2, 2))).to_event(2))
    mu = numpyro.sample("mu", dist.Normal(0, 2).expand([2]).to_event(1))

    def step(carry, row):
        one, two = carry
        with numpyro.plate("series", 4):
            z = numpyro.sample("z", dist.Categorical(p[one, two]))
            numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=row)
        return (two, z), None

    scan(step, (jnp.zeros(4, int), jnp.zeros(4, int)), y)


EDGES = np.array([(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (2, 3)])


def on_a_graph(y):
    """Nodes that prefer the states of their neighbours."""
    z = numpyro.sample("z", dist.Categorical(jnp.ones(2) / 2).expand([6]).to_event(1))
    numpyro.factor("alike", 0.4 * jnp.sum(z[EDGES[:, 0]] == z[EDGES[:, 1]]))
    numpyro.sample("y", dist.Normal(1.0 * z, 1.0).to_event(1), obs=y[:6, 0])


def among_all(y):
    """Every element meets every other."""
    z = numpyro.sample("z", dist.Bernoulli(0.3).expand([5]).to_event(1))
    w = numpyro.sample("w", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(w + jnp.sum(z), 1.0), obs=y[0, 0])


CASES = {"second order": (second_order, 3), "graph": (on_a_graph, 3), "all": (among_all, 5)}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    return CASES[request.param]


def test_no_two_elements_of_one_turn_meet(case):
    program, fewest = case
    with jax.enable_x64(True):
        joint = multi_affine(trace_model(program, (Y,)))
    (block,) = (b for b in joint.blocks if b.sequential)
    turn = turns(joint.summands, block.number, block.batch_shape)
    assert turn.max() + 1 == fewest
    assert turn.shape == (np.prod(block.batch_shape),)
    if program is second_order:
        places = np.arange(turn.size).reshape(block.batch_shape)
        for one, two in itertools.combinations(range(3), 2):
            assert np.all(turn[places[one]] != turn[places[two]])
    if program is on_a_graph:
        assert all(turn[one] != turn[two] for one, two in EDGES)


def test_sweeps_in_turns_never_lower_the_bound(case):
    fit = lb.fit(case[0], Y, method=lb.CAVI(restarts=1))
    assert fit.converged
    assert np.all(np.diff(np.asarray(fit.history.elbo)) > -1e-9 * abs(fit.elbo))
