"""Parameters of a program: found with their starting values, and made data of the program."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.distributions import constraints

from lowerbound import errors
from lowerbound.model import trace_model
from lowerbound.model.parameters import as_argument, find_parameters, parametrised

Y = np.array([0.5, -1.0, 2.0, 0.1])


def message(error, function, *args):
    with pytest.raises(error) as caught:
        find_parameters(function, args)
    assert type(caught.value) is error
    return re.sub(r"\.py:\d+", ".py:N", str(caught.value))


def program(y):
    weights = numpyro.param("weights", jnp.ones(2) / 2, constraint=constraints.simplex)
    centre = numpyro.param("centre", y.mean())
    width = numpyro.param("width", lambda key: jax.random.uniform(key, (2,)) + 1.0)
    top = numpyro.param("top", 1.0, constraint=constraints.interval(0.0, jnp.abs(y).max()))
    z = numpyro.sample("z", dist.Normal(centre, width[0] * top))
    numpyro.sample("y", dist.Normal(z, weights[0] + width[1]), obs=y)


def test_starting_values_constraints_and_lines():
    weights, centre, width, top = find_parameters(program, (Y,))
    assert [p.name for p in (weights, centre, width, top)] == ["weights", "centre", "width", "top"]
    np.testing.assert_array_equal(weights.initial, [0.5, 0.5])
    assert centre.shape == ()
    assert centre.initial == Y.mean()
    assert centre.is_free
    assert width.shape == (2,)
    assert (width.initial > 1.0).all()
    assert weights.unconstrained_shape == (1,)
    assert not weights.is_free
    assert top.constraint.upper_bound == 2.0
    assert re.fullmatch(r"test_parameters\.py:\d+", weights.where)


def test_starting_values_that_are_drawn_follow_the_seed():
    first, again, other = (find_parameters(program, (Y,), seed=s)[2].initial for s in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()


def test_the_key_tells_constraints_apart():
    def bounded(high):
        def model(y):
            numpyro.param("a", 0.5, constraint=constraints.interval(0.0, high))

        return find_parameters(model, (Y,))[0].key

    assert bounded(1.0) == bounded(1.0) != bounded(2.0)


def test_parameters_with_values_are_constants():
    fixed = handlers.substitute(program, data={"centre": 1.0, "top": 0.5})
    assert [p.name for p in find_parameters(fixed, (Y,))] == ["weights", "width"]
    assert find_parameters(lambda y: None, (Y,)) == ()


def test_a_program_that_inspects_its_data():
    def model(y):
        scale = numpyro.param("scale", 2.0 if y.max() > 1.0 else 1.0)
        numpyro.sample("y", dist.Normal(numpyro.sample("z", dist.Normal()), scale), obs=y)

    assert find_parameters(model, (Y,))[0].initial == 2.0


def test_the_program_as_a_function_of_its_parameters():
    parameters = find_parameters(program, (Y,))
    model = trace_model(parametrised(program, parameters), (as_argument(parameters), Y))
    assert list(model.latent) == ["z"]
    assert model.function.__name__ == "program"
    assert set(model.arguments.data) == {
        "y",
        *(f"parameters['{name}']" for name in ("weights", "centre", "width", "top")),
    }
    values = {p.name: p.initial for p in parameters}
    fixed = trace_model(handlers.substitute(program, data=values), (Y,))
    with jax.enable_x64(True):
        z = {"z": jnp.asarray(0.3)}
        expected = fixed.log_density(z, fixed.arguments.data)
        assert model.log_density(z, model.arguments.data) == expected


def test_an_argument_of_the_same_name_as_that_of_the_parameters():
    def model(parameters):
        scale = numpyro.param("scale", 1.0)
        numpyro.sample("y", dist.Normal(numpyro.sample("z", dist.Normal()), scale), obs=parameters)

    found = find_parameters(model, (Y,))
    traced = trace_model(parametrised(model, found), (as_argument(found), Y))
    assert set(traced.arguments.data) == {"parameters['scale']", "args[0]"}


def test_all_parameters_are_named_where_none_can_be_used():
    with pytest.raises(errors.ParameterSiteError) as caught:
        trace_model(program, (Y,))
    assert caught.value.names == ("weights", "centre", "width", "top")
    assert isinstance(caught.value, errors.UnsupportedModelError)
    assert re.sub(r"\.py:\d+", ".py:N", str(caught.value)) == (
        "Site 'weights' is a numpyro.param   (test_parameters.py:N).\n"
        "Site 'centre' is a numpyro.param   (test_parameters.py:N).\n"
        "Site 'width' is a numpyro.param   (test_parameters.py:N).\n"
        "Site 'top' is a numpyro.param   (test_parameters.py:N).\n"
        "Expected latent variables with priors; parameters are maximised by variational EM, with "
        "method=lb.CAVI() or lb.EM(). Give each a prior with numpyro.sample, or fix each: "
        "numpyro.handlers.substitute(model, data={'weights': value, 'centre': value, 'width': "
        "value, 'top': value})."
    )


@pytest.mark.parametrize(
    ("start", "constraint", "found", "expected"),
    [
        (0.0, constraints.positive, "0.", "positive numbers"),
        (
            np.array([1.0, 0.0]),
            constraints.simplex,
            "[1. 0.]",
            "vectors of numbers >= 0 that sum to 1",
        ),
        (2.0, constraints.unit_interval, "2.", "the interval (0, 1)"),
        (np.nan, constraints.real, "nan", "real numbers"),
    ],
)
def test_a_start_on_the_edge_or_outside(start, constraint, found, expected):
    def model(y):
        numpyro.param("a", start, constraint=constraint)

    assert message(errors.ArgumentError, model, Y) == (
        f"Parameter 'a' starts at {found}   (test_parameters.py:N).\n"
        f"Expected {expected}: inside of its constraint, and not on the edge of it. Start it "
        "elsewhere."
    )


def test_a_constraint_without_a_transform():
    def model(y):
        numpyro.param("a", 1, constraint=constraints.nonnegative_integer)

    assert message(errors.UnsupportedModelError, model, Y) == (
        "Parameter 'a' is constrained to the integers 0, 1, 2, ...   (test_parameters.py:N).\n"
        "Expected a set that real numbers map onto, such as constraints.positive or "
        "constraints.simplex. Give it a prior with numpyro.sample, or fix it: "
        "numpyro.handlers.substitute(model, data={'a': value})."
    )


def test_a_tree_of_arrays():
    def model(y):
        numpyro.param("a", {"w": jnp.zeros(2), "b": jnp.zeros(1)})

    assert message(errors.UnsupportedModelError, model, Y) == (
        "Parameter 'a' starts at a dict of 2 arrays   (test_parameters.py:N).\n"
        "Expected one array. Give each of them a numpyro.param of its own."
    )
