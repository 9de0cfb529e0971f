"""What a stochastic fit cannot do is refused with its full text: expected, found, where, how."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound import errors
from tests.run.models import clusters, level, mixture, regression

SMALL = lb.SVI(batch_size=4, steps=12, monitor=None)


def numbers(*shape):
    return np.random.default_rng(0).normal(size=shape)


def message(kind, model, *args, method=SMALL, **kwargs):
    with pytest.raises(kind) as caught:
        lb.fit(model, *args, method=method, **kwargs)
    return str(caught.value)


RATE = (
    'Expected a number above 0.5 and up to 1, or "adaptive": only then do the steps (t + delay)'
    "^-forgetting sum to infinity and their squares do not (Robbins and Monro)."
)
ONE = "Expected an integer of at least 1."


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"forgetting": 0.5}, f"SVI got forgetting=0.5.\n{RATE}"),
        ({"forgetting": 1.2}, f"SVI got forgetting=1.2.\n{RATE}"),
        ({"forgetting": "fast"}, f"SVI got forgetting='fast'.\n{RATE}"),
        ({"delay": 0}, "SVI got delay=0.\nExpected a number above 0."),
        ({"batch_size": 0}, f"SVI got batch_size=0.\n{ONE}"),
        ({"steps": 2.5}, f"SVI got steps=2.5.\n{ONE}"),
        ({"details": {}}, "SVI got details={}.\nExpected lb.Details(...)."),
        (
            {"monitor": "all"},
            "SVI got monitor='all'.\nExpected \"auto\", a number of rows, None, or held-out "
            "arguments of the model.",
        ),
        (
            {"monitor": 0},
            "SVI got monitor=0.\nExpected at least 1 row, or None for no held-out rows.",
        ),
    ],
)
def test_settings_are_checked(settings, text):
    with pytest.raises(errors.ArgumentError) as caught:
        lb.SVI(**settings)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("kind", "settings", "text"),
    [
        (lb.Details, {"sampling": "rows"}, 'sampling=\'rows\'.\nExpected "epochs" or "uniform".'),
        (lb.Details, {"average": 1}, "average=1.\nExpected True or False."),
        (lb.Details, {"tolerance": -1.0}, "tolerance=-1.0.\nExpected a number of at least 0."),
        (lb.Memoized, {"visits": 0}, f"visits=0.\n{ONE}"),
        (lb.Memoized, {"tolerance": -1}, "tolerance=-1.\nExpected a number of at least 0."),
        (
            lb.Memoized,
            {"monitor": "auto"},
            "monitor='auto'.\nExpected a number of rows, None, or held-out arguments of the model.",
        ),
    ],
)
def test_settings_beside_them_are_checked(kind, settings, text):
    with pytest.raises(errors.ArgumentError) as caught:
        kind(**settings)
    assert str(caught.value) == f"{kind.__name__} got {text}"


def test_a_batch_larger_than_the_data():
    x, _ = clusters()
    cavi = "with all rows in every batch, method=lb.CAVI() is the same algorithm without noise."
    text = message(errors.ArgumentError, mixture, x, K=3, method=lb.SVI(batch_size=61))
    assert text == (
        "The batch size is 61, for 60 rows of data.\n"
        f"Expected between 1 and 60. Use a smaller batch_size; {cavi}"
    )
    text = message(errors.ArgumentError, mixture, x, K=3, method=lb.SVI(batch_size=55, monitor=10))
    assert text == (
        "The batch size is 55, for 50 rows of data (10 of 60 are held out).\n"
        f"Expected between 1 and 50. Use a smaller batch_size; {cavi}"
    )


def test_more_components_than_rows():
    x, _ = clusters(n=6)
    text = message(errors.TooManyComponentsError, mixture, x, K=7)
    assert text == (
        "K = 7 components for 6 rows of data.\nExpected at most one component per row. Use K <= 6."
    )


# --------------------------------------------------------------------------------------------------
# Which rows


def square(w):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("left", w.shape[0], dim=-2), numpyro.plate("right", w.shape[1], dim=-1):
        numpyro.sample("w", dist.Normal(mu, 1.0), obs=w)


def test_two_plates_that_could_both_hold_the_rows():
    w = numbers(12, 12)
    assert message(errors.ArgumentError, square, w) == (
        "SVI cannot tell which plate holds the rows: 'left' (12) and 'right' (12) could both be "
        'the local one.\nSay which: lb.SVI(plate="left").'
    )
    settings = {"batch_size": 4, "steps": 9, "forgetting": 1.0, "monitor": None}
    fit = lb.fit(square, w, method=lb.SVI(plate="left", **settings))
    # Conjugate, with whole passes and steps 1/t: the exact posterior.
    np.testing.assert_allclose(fit.mean("mu"), w.sum() / (w.size + 1), rtol=1e-10)
    assert message(errors.ArgumentError, square, w, method=lb.SVI(plate="middle")) == (
        "SVI got plate='middle', which holds no observed site.\n"
        "Expected one of the plates of the observations: 'left', 'right'."
    )
    text = message(errors.ArgumentError, square, w, method=lb.SVI(plate="right", **settings))
    assert text == (
        "On a batch of 4 rows, plate 'right' is of size 12.\n"
        "Expected one member for each entry along the first axis of the data: write "
        'numpyro.plate("right", len(w)).'
    )


def test_no_rows_at_all():
    def total(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y.sum())

    assert message(errors.ArgumentError, total, numbers(40)) == (
        "SVI found no rows: no plate of the observations is as long as an argument; leading "
        "dimensions are y 40.\n"
        "Put the observed sites into a numpyro.plate with one member for each row of the data."
    )


def test_a_plate_whose_size_does_not_follow_the_data():
    def constant(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        with numpyro.plate("n", 40):
            numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    line = constant.__code__.co_firstlineno + 3
    assert message(errors.ArgumentError, constant, numbers(40)) == (
        "The model fits its 40 rows, but not a batch of 4: Site 'y' observes a value of shape "
        f"(4,), its distribution has shape (40,)   (test_svi_errors.py:{line}).\n"
        'Expected every size to follow from the data: write numpyro.plate("n", len(y)).'
    )


def test_a_latent_site_outside_the_plate_whose_shape_follows_the_rows():
    def outside(y):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0).expand([len(y)]).to_event(1))
        with numpyro.plate("n", len(y)):
            numpyro.sample("y", dist.Normal(a, 1.0), obs=y)

    def walk(y):
        a = numpyro.sample("a", dist.GaussianRandomWalk(1.0, num_steps=len(y)))
        with numpyro.plate("n", len(y)):
            numpyro.sample("y", dist.Normal(a, 1.0), obs=y)

    for model in (outside, walk):
        line = model.__code__.co_firstlineno + 1
        assert message(errors.ArgumentError, model, numbers(40)) == (
            "Site 'a' is outside plate 'n', but its shape follows the rows: (4,) for 4 rows, (40,) "
            f"for 40   (test_svi_errors.py:{line})\n"
            "Put it into the plate, or use method=lb.CAVI()."
        )


def test_a_model_that_inspects_its_data():
    def inspecting(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        scale = 1.0 if float(y[0]) > 0 else 2.0
        with numpyro.plate("n", len(y)):
            numpyro.sample("y", dist.Normal(mu, scale), obs=y)

    assert message(errors.ArgumentError, inspecting, numbers(40)) == (
        "The model inspects the values of y in Python, so every batch of rows would be another "
        "program.\nExpected operations that JAX can trace; or use method=lb.CAVI()."
    )


def neighbours(y):
    """Each row depends on the local variable of the row before."""
    tau = numpyro.sample("tau", dist.Gamma(2.0, 2.0))
    with numpyro.plate("n", len(y)):
        s = numpyro.sample("s", dist.Normal(0.0, 1.0))
        before = jnp.concatenate([jnp.zeros(1), s[:-1]])
        numpyro.sample("y", dist.Normal(s + before, 1 / jnp.sqrt(tau)), obs=y)


def switches(y):
    """The same with discrete local variables, which are updated in turn."""
    tau = numpyro.sample("tau", dist.Gamma(2.0, 2.0))
    with numpyro.plate("n", len(y)):
        s = numpyro.sample("s", dist.Bernoulli(0.5))
        before = jnp.concatenate([jnp.zeros(1, s.dtype), s[:-1]])
        numpyro.sample("y", dist.Normal(1.0 * s + 2.0 * before, 1 / jnp.sqrt(tau)), obs=y)


@pytest.mark.parametrize("model", [neighbours, switches])
def test_rows_that_are_coupled(model):
    assert message(errors.ArgumentError, model, numbers(40)) == (
        "The rows of the local site 's' are coupled, so a batch of them cannot be fitted without "
        "the others.\nUse method=lb.CAVI()."
    )


def test_a_model_without_exact_updates():
    def counts(x, y):
        beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with numpyro.plate("n", len(y)):
            numpyro.sample("y", dist.Poisson(jnp.exp(x @ beta)), obs=y)

    x = numbers(40, 2)
    text = message(errors.NotConjugateError, counts, x, (x[:, 0] > 0).astype(int))
    assert "Site 'beta' enters site 'y' through exp(beta)" in text
    plan = lb.explain(counts, x, (x[:, 0] > 0).astype(int), method=SMALL)
    assert "No exact update for 'beta': enters site 'y' through exp(beta)" in str(plan)
    assert "SVI draws 4 of 40 rows without replacement, scaled by 10; step adaptive." in str(plan)


# --------------------------------------------------------------------------------------------------
# Values


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("method", [SMALL, lb.Memoized(batch_size=4, visits=10)])
def test_a_bad_value_in_a_late_batch_is_named_by_its_row(value, method):
    y = numbers(40)
    y[17] = value
    assert message(errors.ArgumentError, level, y, method=method) == (
        f"Row 17 of argument 'y' holds {value}: y[17], shape (40,).\n"
        "Expected finite numbers. Drop the row, or mark missing entries with "
        "numpy.ma.masked_invalid(y)."
    )


def test_missing_entries_of_a_covariate_in_a_late_batch():
    """The first batch shows none, and yet the fit is refused before it starts."""
    x = np.ma.array(numbers(40, 2), mask=np.zeros((40, 2), bool))
    for row in (0, 39):
        marked = x.copy()
        marked[row] = np.ma.masked
        text = message(errors.MissingDataError, regression, marked, numbers(40))
        assert text.startswith("Argument 'x' has 2 missing entries that the distribution of site")
    assert lb.fit(regression, x, numbers(40), method=SMALL).restarts[0].sweeps == 12


def test_batches_too_small_to_see_what_is_missing():
    y = np.ma.array(numbers(40), mask=np.arange(40) == 17)
    text = message(errors.ArgumentError, level, y, method=lb.SVI(batch_size=1, monitor=None))
    assert text == (
        "A batch has 1 rows, and entries are missing in y.\nExpected batches of at least 2 rows, "
        "from which the sites with missing entries can be told. Use a larger batch_size."
    )


def test_a_generator_is_not_data():
    assert message(errors.ArgumentError, level, (v for v in numbers(40))) == (
        "Argument 'y' is a generator, which can be read only once.\n"
        "Expected something that can be read again for every epoch. Pass an object whose __iter__ "
        "starts afresh (a list of batches, or a class with __iter__) to "
        "lb.stream(batches, total=...)."
    )


@pytest.mark.parametrize("length", [10, 60])
def test_values_to_start_local_sites_from(length):
    x, _ = clusters()
    given = lb.Details(init={"z": np.zeros(length)})
    method = lb.SVI(batch_size=10, monitor=None, details=given)
    assert message(errors.ArgumentError, mixture, x, K=3, method=method) == (
        "SVI got init for 'z', which is local: it is solved anew in every batch.\n"
        "Expected values of global sites."
    )


def test_coordinate_ascent_on_a_stream():
    y = numbers(40)
    stream = lb.stream([{"y": y[:20]}, {"y": y[20:]}], total=40)
    assert message(errors.ArgumentError, level, method=lb.CAVI(), **stream) == (
        "fit got columns of a stream with lb.CAVI(), which needs all rows at once.\n"
        "Expected arrays, or method=lb.SVI(...) or lb.Memoized(...)."
    )


def test_an_improper_result_is_named():
    def flat(y):
        a = numpyro.sample("a", dist.ImproperUniform(dist.constraints.real, (), ()))
        b = numpyro.sample("b", dist.ImproperUniform(dist.constraints.real, (), ()))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(a + b, 1.0), obs=y)

    text = message(errors.LowerboundError, flat, numbers(40))
    assert "'a', 'b'" in text
    assert "proper prior" in text
