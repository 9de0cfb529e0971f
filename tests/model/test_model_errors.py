"""Every error of the model stage: expected, found, where, what to do."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.reparam import ProjectedNormalReparam

import lowerbound as lb
from lowerbound import errors
from lowerbound.model import trace_model

Y = np.array([0.5, 1.5, 2.5])


def location(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def message(error: type[Exception], program, *args) -> str:
    """The text of the error that tracing raises, line numbers of this file replaced by N."""
    with pytest.raises(error) as raised:
        trace_model(program, args)
    assert isinstance(raised.value, errors.LowerboundError)
    assert isinstance(raised.value, ValueError)
    return re.sub(r"test_model_errors\.py:\d+", "test_model_errors.py:N", str(raised.value))


def test_nan():
    assert message(errors.NaNDataError, location, np.array([[1.0, 2.0], [np.nan, np.nan]])) == (
        "Argument 'y' holds 2 NaN, the first at y[1, 0], shape (2, 2).\n"
        "Expected finite numbers. Mark missing entries with numpy.ma.masked_invalid(y), or put "
        "any valid number there and exclude the entry with numpyro.handlers.mask."
    )


def test_infinity():
    assert message(errors.InfiniteDataError, location, np.array([1.0, -np.inf])) == (
        "Argument 'y' holds an infinite value, -inf at y[1], shape (2,).\n"
        "Expected finite numbers. Remove the entry, or mark it as missing with "
        "numpy.ma.masked_invalid(y)."
    )


def test_empty():
    assert message(errors.EmptyDataError, location, np.ones((0, 3))) == (
        "Argument 'y' is empty: shape (0, 3).\n"
        "Expected at least one entry along every axis. Check the selection that made it."
    )


def test_no_latent_site():
    def model(y):
        numpyro.sample("y", dist.Normal(0.0, 1.0), obs=y)

    assert message(errors.NoLatentSiteError, model, Y) == (
        "The model has no latent site; its observed sites are 'y'.\n"
        "Expected at least one numpyro.sample without obs."
    )


def test_site_name_used_twice():
    def model(y):
        for _ in range(2):
            numpyro.sample("mu", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(0.0, 1.0), obs=y)

    assert message(errors.DuplicateSiteError, model, Y) == (
        "Site name 'mu' is used twice: at test_model_errors.py:N and at test_model_errors.py:N.\n"
        'Expected unique names. Rename one; in a Python loop put the index into the name, f"..._'
        '{i}".'
    )


@pytest.mark.parametrize("rows", [10_000, 10**12])
def test_a_loop_of_more_sites_than_can_be_read_is_refused_while_it_runs(rows):
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        for i in range(rows):
            numpyro.sample(f"y_{i}", dist.Normal(mu, 1.0), obs=y[0])

    assert message(errors.TooManySitesError, model, Y) == (
        "The program states more than 2,000 sites; 'y_1999' is the next   "
        "(test_model_errors.py:N)\n"
        "Expected at most 2,000, since each is derived and compiled on its own, about 0.1 s for an "
        "observed number and more for a latent one. Write a Python loop over rows as numpyro.plate "
        "with arrays, and one over steps as numpyro.contrib.control_flow.scan."
    )


def test_data_ignored():
    def model(x, y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(mu, 1.0))

    assert message(errors.UnusedDataError, model, Y, Y) == (
        "The model ignores its data: no site depends on the values of 'x', 'y'.\n"
        "Expected some site to be observed (obs=...) or to depend on them. Check that the model "
        "uses its arguments."
    )


def test_data_that_the_program_has_itself_are_data():
    def model(x):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=Y)

    note = "No site depends on the values of 'x': what the model observes, it has itself."
    assert note in str(lb.explain(model, np.ones(2)))
    assert lb.fit(model, np.ones(2)).mean("mu") == pytest.approx(Y.sum() / 4)


def test_an_argument_may_serve_for_its_shape_alone():
    def model(like, y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0).expand([len(like)]).to_event(1))
        numpyro.sample("y", dist.Normal(mu.sum(), 1.0), obs=y)

    assert trace_model(model, (np.ones(2), Y)).latent["mu"].shape == (2,)


def test_negative_counts():
    def model(y):
        rate = numpyro.sample("rate", dist.LogNormal(0.0, 1.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("counts", dist.Poisson(rate), obs=y)

    assert message(errors.SupportError, model, np.array([1, -3, -1])) == (
        "Site 'counts' (argument 'y') observes negative counts: y[1] = -3, 2 such entries   "
        "(test_model_errors.py:N).\n"
        "Expected values in the support of Poisson: the integers 0, 1, 2, .... Correct the data, "
        "mask these entries, or choose another distribution."
    )
    assert "impossible values: y[0] = 0.5, 1 such entry " in message(
        errors.SupportError, model, np.array([0.5, 1.0])
    )


def observed(make, site="z"):
    def model(y):
        p = numpyro.sample("p", dist.Uniform(0.0, 1.0))
        numpyro.sample(site, make(p), obs=y)

    return model


@pytest.mark.parametrize(
    ("make", "y", "found", "support"),
    [
        (dist.Bernoulli, [0, 2], "y[1] = 2", "BernoulliProbs: 0 or 1"),
        (lambda p: dist.Gamma(1.0, p), [1.0, 0.0], "y[1] = 0.0", "Gamma: positive numbers"),
        (lambda p: dist.Beta(1.0, p), [0.5, 2.0], "y[1] = 2.0", "Beta: the interval (0, 1)"),
        (
            lambda p: dist.Binomial(np.array([2, 4]), p),
            [3, 3],
            "y[0] = 3",
            "BinomialProbs: the integers from 0 to (2 to 4, by entry)",
        ),
        (
            lambda p: dist.Binomial(3, p),
            [3, -1],
            "negative counts: y[1] = -1",
            "BinomialProbs: the integers from 0 to 3",
        ),
        (
            lambda p: dist.Categorical(jnp.ones(3) / 3 * p),
            [0, 3],
            "y[1] = 3",
            "CategoricalProbs: the integers from 0 to 2",
        ),
        (
            lambda p: dist.Dirichlet(jnp.ones(2) * p),
            [[0.5, 0.5], [0.5, 0.6]],
            "y[1] = [0.5, 0.6]",
            "Dirichlet: vectors of numbers >= 0 that sum to 1",
        ),
        (
            lambda p: dist.Multinomial(3, jnp.ones(2) * p),
            [[1, 2], [4, -1]],
            "negative counts: y[1] = [4, -1]",
            "MultinomialProbs: vectors of integers >= 0 that sum to 3",
        ),
        (
            lambda p: dist.Pareto(1.0, p),
            [2.0, 0.5],
            "y[1] = 0.5",
            "Pareto: numbers above 1",
        ),
        (
            lambda p: dist.Poisson(p).expand([2]).to_event(1),
            [[1, 2], [1, -2]],
            "y[1, 1] = -2",
            "Poisson: the integers 0, 1, 2, ...",
        ),
    ],
)
def test_impossible_observations(make, y, found, support):
    text = message(errors.SupportError, observed(make), np.array(y))
    assert f"Site 'z' (argument 'y') observes {found.split(':')[0] if ':' in found else ''}" in text
    assert found in text
    assert f"Expected values in the support of {support}. " in text


def of_latent_total(y):
    n = numpyro.sample("n", dist.DiscreteUniform(5, 20))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("z", dist.Binomial(n, 0.4), obs=y)


def of_latent_ends(y):
    low = numpyro.sample("low", dist.Categorical(jnp.ones(3) / 3))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("z", dist.DiscreteUniform(low, low + 9), obs=y)


@pytest.mark.parametrize("model", [of_latent_total, of_latent_ends])
def test_counts_whose_bounds_are_latent_are_integers_all_the_same(model):
    trace_model(model, (np.array([3.0, 4.0, 30.0]),))  # which bounds there are is not known
    text = message(errors.SupportError, model, np.array([3.0, 4.5, 5.0]))
    assert "Site 'z' (argument 'y') observes impossible values: y[1] = 4.5, 1 such entry" in text
    assert ": the integers. Correct the data" in text


def test_impossible_observation_computed_in_the_model():
    def model(y):
        rate = numpyro.sample("rate", dist.LogNormal(0.0, 1.0))
        numpyro.sample("rest", dist.Exponential(rate), obs=y - 1.0)

    assert message(errors.SupportError, model, Y).startswith(
        "Site 'rest' observes impossible values: rest[0] = -0.5, 1 such entry"
    )


def test_masked_observations_may_be_impossible():
    def model(y, keep):
        rate = numpyro.sample("rate", dist.LogNormal(0.0, 1.0))
        with handlers.mask(mask=keep):
            numpyro.sample("y", dist.Poisson(rate), obs=y)

    counts, keep = np.array([1, -999, 2]), np.array([True, False, True])
    assert trace_model(model, (counts, keep)).observed["y"].missing is None
    assert "y[1] = -999" in message(errors.SupportError, model, counts, ~keep)


@pytest.mark.parametrize(
    "law",
    [
        dist.LKJCholesky(4, 1.0),
        dist.ProjectedNormal(jnp.array([0.3, 1.0, -0.4])),
        dist.ZeroSumNormal(3.0, (40,)),
        dist.Dirichlet(jnp.ones(60)),
    ],
    ids=lambda law: type(law).__name__,
)
def test_singles_have_the_rounding_of_singles(law):
    """Draws of NumPyro in its default precision are data of its own distributions."""

    def model(y):
        shift = numpyro.sample("shift", dist.Normal(0.0, 1.0))
        numpyro.factor("other", -(shift**2))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", law, obs=y)

    y = np.asarray(law.sample(jax.random.key(0), (200,)))
    assert y.dtype == np.float32
    assert "y" in trace_model(model, (y,)).observed
    wrong = y.copy()
    wrong[7] *= 1.01
    wrong[7, ..., 0] += 0.01
    assert "y[7] = [" in message(errors.SupportError, model, wrong)


def test_directions_have_no_coordinates():
    def model():
        numpyro.sample("way", dist.ProjectedNormal(jnp.array([0.3, 1.0])))

    text = message(errors.NoCoordinatesError, model)
    assert text.startswith(
        "Site 'way' is ProjectedNormal, and NumPyro has no map from real numbers to its support, "
        "vectors of length 1   (test_model_errors.py:"
    )
    config = {"way": ProjectedNormalReparam()}
    trace_model(numpyro.handlers.reparam(model, config=config), ())


def test_supports_that_depend_on_latents_are_not_checked():
    assert trace_model(observed(lambda p: dist.Uniform(0.0, p)), (Y,)).sites


def test_parameter_site():
    def model(y):
        scale = numpyro.param("scale", 1.0, constraint=dist.constraints.positive)
        mu = numpyro.sample("mu", dist.Normal(0.0, scale))
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    assert message(errors.ParameterSiteError, model, Y) == (
        "Site 'scale' is a numpyro.param   (test_model_errors.py:N).\n"
        "Expected latent variables with priors; parameters are maximised by variational EM, with "
        "method=lb.CAVI() or lb.EM(). Give it a prior with numpyro.sample, or fix it: "
        "numpyro.handlers.substitute(model, data={'scale': value})."
    )


def test_subsampling_in_a_model_that_needs_its_batch():
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        weights = jnp.ones(2)
        with numpyro.plate("rows", len(y), subsample_size=2) as rows:
            numpyro.sample("y", dist.Normal(mu * weights, 1.0), obs=y[rows])

    text = message(errors.SubsampledPlateError, model, Y)
    assert text.startswith(
        "Plate 'rows' takes 2 of 3 rows at random   (test_model_errors.py:N), and the program "
        "does not run with all of them: "
    )
    assert text.endswith(
        ".\nExpected arrays that follow the rows of the plate, since a fit takes all of them: give "
        "the program all data and no subsample_size. With method=lb.SVI(batch_size=...) the "
        "library makes the batches."
    )


def test_a_batch_in_place_of_the_data():
    def model(batch):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", 1000, subsample_size=len(batch)):
            numpyro.sample("y", dist.Normal(mu, 1.0), obs=batch)

    text = message(errors.SubsampledPlateError, model, Y)
    assert "takes 3 of 1000 rows at random" in text


def test_control_flow_on_a_latent_value():
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        scale = 1.0 if mu > 0 else 2.0
        numpyro.sample("y", dist.Normal(mu, scale), obs=y)

    assert message(errors.UnsupportedModelError, model, Y) == (
        "Python control flow, a Python number or a NumPy function depends on a latent value   "
        "(test_model_errors.py:N)\n"
        "  scale = 1.0 if mu > 0 else 2.0\n"
        "Expected operations that JAX can trace: use jnp.where or jax.lax.cond instead of if, and "
        "jnp functions instead of NumPy's."
    )


@pytest.mark.parametrize("other", [None, [1.0, 2.0], {}.pop], ids=["None", "list", "method"])
def test_what_python_cannot_subtract_is_said_in_its_words(other):
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mu - other, 1.0), obs=y)

    text = message(errors.UnsupportedModelError, model, Y)
    kind = type(other).__name__
    assert text == (
        f"Python says: unsupported operand type(s) for -: a latent value and '{kind}'   "
        "(test_model_errors.py:N)\n"
        '  numpyro.sample("y", dist.Normal(mu - other, 1.0), obs=y)\n'
        "Expected numbers or arrays on both sides. The other one may be a list, None, or a method "
        "that was meant to be called."
    )


def test_numpy_function_of_a_latent_value_without_data_arguments():
    def model():
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(np.exp(mu), 1.0), obs=1.0)

    text = message(errors.UnsupportedModelError, model)
    assert 'numpyro.sample("y", dist.Normal(np.exp(mu), 1.0), obs=1.0)' in text


def test_shapes_that_do_not_fit_inside_the_model():
    def model(x, y):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        mean = x @ w
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    text = message(errors.ShapeError, model, np.ones((3, 4)), Y)
    assert text.startswith(
        "Shapes do not fit together   (test_model_errors.py:N)\n  mean = x @ w\n  "
    )
    assert text.endswith(
        "\n  Shapes: x (3, 4); y (3,).\nCheck the plates and the shapes of the arguments."
    )
    with pytest.raises(errors.ShapeError) as raised:
        trace_model(model, (np.ones((3, 4)), Y))
    assert isinstance(raised.value.__cause__, TypeError)


def test_shapes_that_do_not_fit_a_plate():
    def model(x, y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(mu * x, 1.0), obs=y)

    text = message(errors.ShapeError, model, np.ones(4), Y)
    assert text.startswith(
        "Shapes do not fit together in site 'y'   (test_model_errors.py:N)\n"
        '  numpyro.sample("y", dist.Normal(mu * x, 1.0), obs=y)\n'
        "  Incompatible shapes for broadcasting: "
    )


@pytest.mark.parametrize("shape", [(4,), (3, 1)])
def test_observations_that_do_not_fit_their_distribution(shape):
    def model(x, y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mu * x, 1.0), obs=y)

    assert message(errors.ShapeError, model, Y, np.ones(shape)) == (
        f"Site 'y' observes a value of shape {shape}, its distribution has shape (3,)   "
        "(test_model_errors.py:N).\n"
        "Expected one to broadcast to the other. Check the plates and the orientation of the "
        "arguments (a column (n, 1) is not a vector (n,))."
    )


def test_other_errors_of_the_model_pass_unchanged():
    def model(y):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match=r"^mine"):
        trace_model(model, (Y,))
