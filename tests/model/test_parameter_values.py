"""Parameters that no law has are named before work starts; those of some law are not refused."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from lowerbound.errors import LowerboundError, ParameterValueError
from lowerbound.model import trace_model

Y = np.array([0.3, -0.9, 0.4, 1.1])
COUNTS = np.array([0, 2, 1, 0])


def over(law, y=Y):
    """A program with one latent number that the observations' law may lean on."""

    def program(y, *more):
        m = numpyro.sample("m", dist.Normal(0.0, 1.0))
        numpyro.sample("y", law(m, *more), obs=y)

    return program


def traced(law, y, *more):
    return trace_model(over(law), (y, *more))


IMPOSSIBLE = {
    "a negative scale": (lambda m: dist.Normal(m, -1.0), Y, (), "scale = -1"),
    "a scale of zero": (lambda m: dist.Laplace(m, 0.0), Y, (), "scale = 0"),
    "arguments that change places": (
        lambda m, s: dist.Normal(m, s),
        Y,
        (np.array([1.0, 2.0, -0.5, 1.0]),),
        "scale[2] = -0.5, 1 such entry, which is argument 'more[0]'",
    ),
    "a standard error of zero": (
        lambda m, s: dist.Normal(m, s),
        Y,
        (np.array([1.0, 0.0, 0.0, 1.0]),),
        "scale[1] = 0, 2 such entries",
    ),
    "a probability beyond one": (
        lambda m: dist.Binomial(9, probs=jnp.array([0.1, 1.5, 0.2, 0.3])),
        COUNTS,
        (),
        "probs[1] = 1.5",
    ),
    "a probability below zero": (
        lambda m: dist.Bernoulli(probs=-0.1),
        np.array([0, 1]),
        (),
        "probs = -0.1",
    ),
    "a negative share": (
        lambda m: dist.Categorical(probs=jnp.array([0.5, -0.5, 1.0])),
        np.array([0, 1]),
        (),
        "probs[1] = -0.5",
    ),
    "a covariance with a direction below zero": (
        lambda m: dist.MultivariateNormal(
            m * jnp.ones(2), covariance_matrix=jnp.array([[1.0, 2.0], [2.0, 1.0]])
        ),
        np.zeros((3, 2)),
        (),
        "a positive definite matrix",
    ),
    "within a mixture": (
        lambda m: dist.MixtureSameFamily(
            dist.Categorical(probs=jnp.array([0.5, 0.5])),
            dist.Normal(jnp.array([0.0, 1.0]), jnp.array([1.0, -1.0])),
        ),
        Y,
        (),
        "scale[1] = -1",
    ),
    "within a transformed law": (lambda m: dist.LogNormal(m, -0.5), abs(Y), (), "scale = -0.5"),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_no_law_has_is_named(name):
    law, y, more, said = IMPOSSIBLE[name]
    with pytest.raises(ParameterValueError) as raised:
        traced(law, y, *more)
    text = str(raised.value)
    assert text.startswith("Site 'y' has an impossible ")
    assert said in text
    assert "test_parameter_values.py:" in text


def test_the_whole_text():
    with pytest.raises(ParameterValueError) as raised:
        traced(lambda m: dist.Normal(m, -2.0), Y)
    first, second = str(raised.value).split("\n")
    assert first.startswith("Site 'y' has an impossible Normal: scale = -2   (test_parameter_val")
    assert second == (
        "Expected positive numbers for 'scale'. Correct it, or see that arguments come in the "
        "order in which the program names them."
    )


def test_a_prior_is_looked_at_too():
    def program(y):
        w = numpyro.sample("w", dist.Dirichlet(jnp.array([1.0, 0.0, 1.0])))
        numpyro.sample("y", dist.Categorical(w), obs=y)

    with pytest.raises(ParameterValueError, match=r"concentration\[1\] = 0"):
        trace_model(program, (np.array([0, 2]),))


ALLOWED = {
    "a rate of zero with no counts": (lambda m: dist.Poisson(jnp.array([0.0, 2.0])), [0, 3]),
    "angles that are everywhere alike": (lambda m: dist.VonMises(m, 0.0), [0.1, 0.2]),
    "no trials": (lambda m: dist.Binomial(jnp.array([0, 3]), logits=m), [0, 2]),
    "rounding of single precision": (
        lambda m: dist.Bernoulli(probs=jnp.array([1.0000001, -1e-9])),
        [1, 0],
    ),
    "a scale that latent values decide": (lambda m: dist.Normal(0.0, m), [0.1, 0.2]),
    "a scale that is masked": (
        lambda m: dist.Normal(m, jnp.array([1.0, 0.0])).mask(jnp.array([True, False])),
        [0.1, 0.2],
    ),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_some_law_has_is_not_refused(name):
    law, y = ALLOWED[name]
    assert "y" in traced(law, np.array(y)).observed


def test_what_nan_data_make_of_a_parameter_is_no_fault_of_the_program():
    """A program leaves rows without a standard error out: its scales are well where they count."""

    def program(y, s):
        m = numpyro.sample("m", dist.Normal(0.0, 1.0))
        with numpyro.handlers.mask(mask=~jnp.isnan(s)):
            numpyro.sample("y", dist.Normal(m, jnp.where(jnp.isnan(s), -1.0, s)), obs=y)

    assert "y" in trace_model(program, (Y, np.array([1.0, np.nan, 2.0, 1.0]))).observed


def test_programs_with_impossible_parameters_are_refused_by_every_call():
    import lowerbound as lb

    def program(y):
        m = numpyro.sample("m", dist.Normal(0.0, -3.0))
        numpyro.sample("y", dist.Normal(m, 1.0), obs=y)

    for call in (lb.explain, lb.fit):
        with pytest.raises(LowerboundError, match="Site 'm' has an impossible Normal: scale = -3"):
            call(program, Y)
