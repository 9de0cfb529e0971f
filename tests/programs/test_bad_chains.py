"""Series that cannot be fitted as they are written: the error says why."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan
from numpyro.distributions import constraints

import lowerbound as lb
from lowerbound import errors
from lowerbound.model import trace_model

Y = np.array([0.4, 1.3, 0.7, 2.1, 2.9])


def walk(length, scale):
    def step(z, _):
        z = numpyro.sample("z", dist.Normal(z, scale))
        return z, z

    return scan(step, 0.0, None, length=length)[1]


def test_the_number_of_steps_may_be_computed_from_data():
    def program(y, seen):
        z = walk(jnp.sum(seen), 0.5)
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)

    model = trace_model(program, (Y, np.ones(5, int)))
    assert model.latent["z"].shape == (5,)


def by_scan(y):
    count = numpyro.sample("count", dist.Poisson(5.0))
    numpyro.sample("y", dist.Normal(walk(count, 0.5)[-1], 1.0), obs=y)


def by_loop(y):
    count, z = numpyro.sample("count", dist.Poisson(5.0)), 0.0
    for t in range(count):
        z = numpyro.sample(f"z_{t}", dist.Normal(z, 0.5))
    numpyro.sample("y", dist.Normal(z, 1.0), obs=y)


@pytest.mark.parametrize(
    ("program", "line"),
    [
        (by_scan, "return scan(step, 0.0, None, length=length)[1]"),
        (by_loop, "for t in range(count):"),
    ],
)
def test_the_number_of_steps_is_no_latent_value(program, line):
    with pytest.raises(errors.UnsupportedModelError) as caught:
        lb.explain(program, Y[0])
    first, source, rest = str(caught.value).split("\n")
    assert first.startswith("The number of steps of a loop depends on a latent value   (test_bad_")
    assert source.strip() == line
    assert rest == (
        "Expected a number that is known before: the length of an array, or an argument. Take as "
        "many steps as there may be, and leave those beyond the end out by numpyro.handlers.mask."
    )


def test_choices_inside_a_step_are_not_taken_for_its_number():
    def program(y):
        def step(z, y):
            z = numpyro.sample("z", dist.Normal(z, 0.5))
            z = z if z > 0 else 2.0 * z
            numpyro.sample("y", dist.Normal(z, 1.0), obs=y)
            return z, None

        scan(step, 0.0, y)

    with pytest.raises(errors.UnsupportedModelError) as caught:
        lb.explain(program, Y)
    assert str(caught.value).startswith("Python control flow, a Python number or a NumPy function")


def test_a_step_that_reads_one_after_the_last():
    def program(y):
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([len(y)]).to_event(1))
        steps = jax.vmap(lambda t: dist.Normal(z[t], scale).log_prob(z[t + 1]))
        numpyro.factor("steps", steps(jnp.arange(len(y))).sum())
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)

    with pytest.raises(errors.CodeRangeError) as caught:
        lb.explain(program, Y)
    assert str(caught.value) == (
        "An array of 'z' has 5 entries along an axis that is indexed by 5.\n"
        "Expected indices from 0 to 4. Check the codes of the groups, and how many groups the "
        "plate has; of a series, whether a step reads one after the last. Rows that are masked "
        "may have any code within."
    )


def absorbed(y, seen):
    stay = jnp.array([[0.5, 0.5], [0.0, 1.0]])
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))

    def step(z, now):
        y, seen = now
        z = numpyro.sample("z", dist.Categorical(stay[z]))
        numpyro.sample("seen", dist.Categorical(jnp.eye(2)[z]), obs=seen)
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)
        return z, None

    scan(step, 0, (y, seen))


def test_a_path_that_leaves_an_absorbing_state_is_impossible():
    with pytest.raises(errors.ImpossibleDataError) as caught:
        lb.fit(absorbed, Y, np.array([0, 1, 1, 0, 1]))
    first, rest = str(caught.value).split("\n")
    assert first.startswith("The density of the data is zero, or no number, at every value of 'z'.")
    assert rest == (
        "Expected values at which the data are possible. Correct the data, or the zeros and bounds "
        "in the densities of the program."
    )


def test_a_path_that_stays_in_an_absorbing_state_is_found():
    fit = lb.fit(absorbed, Y, np.array([0, 0, 1, 1, 1]))
    np.testing.assert_allclose(fit.mean("z"), [0, 0, 1, 1, 1], atol=1e-12)


def first_flat(y, seen):
    """A level and a second one beside it, whose first values are flat."""
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    flat = dist.ImproperUniform(constraints.real, (), ())
    starts = numpyro.sample("start", flat), numpyro.sample("other_start", flat)

    def step(state, y):
        z, other = state
        z = numpyro.sample("z", dist.Normal(z, scale))
        other = numpyro.sample("other", dist.Normal(other, 1.0))
        numpyro.sample("y", dist.Normal(z + seen * other, 1.0), obs=y)
        return (z, other), None

    scan(step, starts, y)


@pytest.mark.parametrize("seen", [0.0, 1.0])
def test_a_first_state_without_a_prior_that_nothing_tells(seen):
    with pytest.raises(errors.ImproperPosteriorError) as caught:
        lb.explain(first_flat, Y, seen)
    assert "other_start" in str(caught.value)
