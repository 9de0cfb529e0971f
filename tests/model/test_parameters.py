"""Parameters of a program: found with their starting values, and made data of the program."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.module import ParamShape
from numpyro.distributions import constraints

from lowerbound import errors
from lowerbound.model import trace_model
from lowerbound.rewrite.parameters import (
    as_argument,
    find_parameters,
    parameter_inputs,
    parametrised,
)
from lowerbound.rewrite.trees import tree_from, tree_record, with_values

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


# --- Trees ---


def network(y, prior=None):
    """A layer as `flax_module` and its like register it, with state, and a prior of its bias."""
    held = numpyro.param("net$params")
    state = numpyro.primitives.mutable("net$state")
    assert (held is None) == (state is None)
    if held is None:
        key = numpyro.prng_key()
        held = {"layer": {"w": jax.random.normal(key, (2,)), "b": jnp.zeros(1)}, "count": 3}
        state = {"average": {"mean": jnp.zeros(2)}}
        numpyro.param("net$params", held)
        numpyro.primitives.mutable("net$state", state)
    layer = dict(held["layer"])
    if prior is not None:  # as `random_flax_module` does
        held["layer"]["b"] = ParamShape((1,))
        layer["b"] = numpyro.sample("b", prior.expand([1]).to_event(1))
    z = numpyro.sample("z", dist.Normal())
    assert isinstance(state["average"]["mean"], jax.Array)  # a counter may be written into
    state["average"] = {"mean": layer["w"] * z}  # as batch normalisation does
    numpyro.sample("y", dist.Normal(layer["w"][0] * z + layer["b"][0] * held["count"], 1.0), obs=y)


def test_the_leaves_of_a_tree_are_parameters():
    found = find_parameters(network, (Y,), seed=1)
    names = [p.name for p in found]
    assert names == ["net$params['layer']['b']", "net$params['layer']['w']"]
    assert [p.shape for p in found] == [(1,), (2,)]
    other = find_parameters(network, (Y,), seed=2)
    assert (found[1].initial != other[1].initial).all()
    trees = found.trees({names[0]: np.array([7.0]), names[1]: np.array([1.0, 2.0])})
    assert set(trees) == {"net$params", "net$state"}
    np.testing.assert_array_equal(trees["net$params"]["layer"]["w"], [1.0, 2.0])
    assert trees["net$params"]["count"] == 3  # whole numbers stay
    np.testing.assert_array_equal(trees["net$state"]["average"]["mean"], np.zeros(2))
    assert found.layout.state() == ("net$state",)


def test_a_tree_is_started_by_its_site_or_by_a_leaf():
    found = find_parameters(network, (Y,))
    tree = {"layer": {"w": np.array([1.0, 2.0]), "b": np.array([3.0])}, "count": 3}
    whole = found.started({"net$params": tree})
    assert [p.initial.tolist() for p in whole] == [[3.0], [1.0, 2.0]]
    single = found.started({"net$params['layer']['b']": [4.0]})
    assert single[0].initial == [4.0]
    np.testing.assert_array_equal(single[1].initial, found[1].initial)


def test_the_program_as_a_function_of_a_tree():
    """Its density is that at the tree, and no run writes into what another gets."""
    found = find_parameters(network, (Y,))
    model = trace_model(parametrised(network, found), (as_argument(found), Y))
    values = {p.name: p.initial + 0.5 for p in found}
    held = found.trees(values)
    fixed = trace_model(with_values(network, held), (Y,))
    with jax.enable_x64(True):
        z = {"z": jnp.asarray(0.3)}
        data = {**model.arguments.data, **parameter_inputs(values)}
        expected = fixed.log_density(z, fixed.arguments.data)
        assert model.log_density(z, data) == expected
        assert fixed.log_density(z, fixed.arguments.data) == expected
    w, b = values["net$params['layer']['w']"], values["net$params['layer']['b']"]
    by_hand = dist.Normal(w[0] * 0.3 + b[0] * 3, 1.0).log_prob(Y).sum()
    assert expected == pytest.approx(float(by_hand + dist.Normal().log_prob(0.3)), rel=1e-6)
    np.testing.assert_array_equal(held["net$state"]["average"]["mean"], np.zeros(2))


def test_leaves_with_a_prior_are_latent_sites():
    lifted = partial(network, prior=dist.Normal())
    found = find_parameters(lifted, (Y,))
    assert [p.name for p in found] == ["net$params['layer']['w']"]
    model = trace_model(parametrised(lifted, found), (as_argument(found), Y))
    assert set(model.latent) == {"b", "z"}


def test_a_tree_without_a_number_left_is_no_parameter():
    def model(y):
        tree = {"w": jnp.zeros(2)}
        numpyro.param("a", tree)
        tree["w"] = ParamShape((2,))
        w = numpyro.sample("w", dist.Normal().expand([2]).to_event(1))
        numpyro.sample("y", dist.Normal(w[0], 1.0), obs=y)

    assert find_parameters(model, (Y,)) == ()
    assert list(trace_model(model, (Y,)).latent) == ["w"]


def test_a_tree_may_not_be_constrained():
    def model(y):
        numpyro.param("a", {"w": jnp.ones(2), "b": jnp.ones(1)}, constraint=constraints.positive)

    assert message(errors.UnsupportedModelError, model, Y) == (
        "Parameter 'a' is a dict of 2 arrays, constrained to positive numbers   "
        "(test_parameters.py:N).\n"
        "Expected constraint= with a single array. Give those that are constrained a "
        "numpyro.param of their own."
    )


def test_trees_as_records():
    tree = {"a": [np.ones(2), (np.zeros(1), None)], "c": {0: {"b": ParamShape((3, 1))}}}
    again = tree_from(tree_record("t", tree))
    assert jax.tree.structure(again) == jax.tree.structure(tree)
    jax.tree.map(np.testing.assert_array_equal, again, tree)
    with pytest.raises(errors.ArgumentError) as caught:
        tree_record("t", {"a": {1, 2}})
    assert str(caught.value) == (
        "Parameter 't' holds a set, which files do not know, so the fit cannot be saved.\n"
        "Expected dictionaries, lists and tuples of arrays. Keep "
        "jax.tree.leaves(fit.parameters['t']) instead."
    )
