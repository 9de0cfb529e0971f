"""Codes and steps that lead beyond an array: JAX takes the last entry, and says nothing."""

import warnings

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan

import lowerbound as lb
from lowerbound import errors

Y = np.array([0.3, -0.2, 1.1, 0.4, 0.0, 0.9])
FROM_ONE = np.array([1, 2, 3, 1, 2, 3])  # as R counts


def levels(code, y):
    level = numpyro.sample("level", dist.Normal(0.0, 1.0).expand([3]))
    numpyro.sample("y", dist.Normal(level[code], 1.0), obs=y)


def shares(code, y):
    share = numpyro.sample("share", dist.Beta(1.0, 1.0).expand([3]))
    numpyro.sample("y", dist.Bernoulli(share[code]), obs=(y > 0).astype(int))


def slopes(code, y):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0).expand([2, 3]))
    numpyro.sample("y", dist.Normal(slope[0, code] + slope[1, code], 1.0), obs=y)


def doses(code, y):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(slope * jnp.array([0.5, 1.0, 2.0])[code], 1.0), obs=y)


@pytest.mark.parametrize(
    ("program", "of"), [(levels, "'level'"), (shares, "'share'"), (slopes, "'slope'")]
)
def test_codes_from_one_are_an_error(program, of):
    with pytest.raises(errors.CodeRangeError, match=f"array of {of} has 3 entries .* by 3"):
        lb.explain(program, FROM_ONE, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lb.explain(program, FROM_ONE - 1, Y)


def test_codes_beyond_an_array_of_data_are_an_error():
    with pytest.raises(errors.CodeRangeError, match="array of data has 3 entries"):
        lb.explain(doses, FROM_ONE, Y)
    lb.explain(doses, FROM_ONE - 1, Y)


@pytest.mark.parametrize("ahead", [1, 0, -1])
def test_a_step_that_reads_data_after_the_last_entry_is_warned_of(ahead):
    def program(y):
        def step(x, t):
            x = numpyro.sample("x", dist.Normal(x, 1.0))
            numpyro.sample("y", dist.Normal(x, 1.0), obs=y[t + ahead])
            return x, None

        scan(step, 0.0, jnp.arange(len(y)))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lb.explain(program, Y)
    beyond = [w for w in caught if issubclass(w.category, errors.ReadBeyondWarning)]
    assert bool(beyond) == (ahead == 1)  # -1 is the last entry, as everywhere
    if beyond:
        assert "reads entry 6 of an array of data that has 6" in str(beyond[0].message)


def test_reads_that_say_what_lies_beyond_are_left_alone():
    def program(code, y):
        level = numpyro.sample("level", dist.Normal(0.0, 1.0).expand([3]))
        mean = level.at[code].get(mode="fill", fill_value=0.0)
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    lb.explain(program, FROM_ONE, Y)


def test_a_step_that_carries_a_key_of_random_numbers_is_looked_at():
    """Sites in a scan: NumPyro hands a key from step to step."""

    def program(y):
        rate = numpyro.sample("rate", dist.Beta(1.0, 1.0))

        def step(alive, t):
            level = numpyro.sample("level", dist.Normal(0.0, 1.0))
            alive = numpyro.sample(
                "alive", dist.Bernoulli(rate * alive), infer={"enumerate": "parallel"}
            )
            numpyro.sample("y", dist.Normal(level + alive, 1.0), obs=y[t + 1])
            return alive, None

        scan(step, 1, jnp.arange(len(y)))

    with pytest.warns(errors.ReadBeyondWarning, match="reads entry 6"):
        lb.explain(program, Y)


def by_probabilities(y):
    shares = numpyro.sample("shares", dist.Dirichlet(jnp.ones(3)))
    numpyro.sample("y", dist.Categorical(shares).expand([6]).to_event(1), obs=y)


def by_logits(y):
    level = numpyro.sample("level", dist.Normal(0.0, 1.0).expand([3]))
    numpyro.sample("y", dist.Categorical(logits=level), obs=y)


def by_cutpoints(y):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.OrderedLogistic(slope, jnp.array([-1.0, 1.0])), obs=y)


@pytest.mark.parametrize("program", [by_probabilities, by_logits, by_cutpoints])
def test_categories_that_are_floats_are_named(program):
    codes = np.array([0, 1, 2, 2, 1, 0])
    lb.explain(program, codes)
    with pytest.raises(errors.CodeTypeError, match=r"(?s)'y' .*float64.*astype\(int\)"):
        lb.explain(program, codes.astype(float))


def test_a_category_that_a_handler_fixes_is_looked_at_too():
    def program():
        shares = numpyro.sample("shares", dist.Dirichlet(jnp.ones(3)))
        numpyro.sample("y", dist.Categorical(shares))

    with pytest.raises(errors.CodeTypeError, match="Site 'y'"):
        lb.fit(numpyro.handlers.condition(program, {"y": 0.0}))
