"""Where rows come from does not matter: arrays, tables, files, missing entries, precisions."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse

import lowerbound as lb
from lowerbound import errors
from tests.run.models import level, line, regression

METHOD = lb.SVI(batch_size=40, steps=20, forgetting=0.7, monitor=None)
# Whole passes with steps 1/t: the exact posterior of a conjugate model, in any order of the rows.
EXACT = lb.SVI(batch_size=40, steps=15, forgetting=1.0, monitor=None)


@pytest.fixture(scope="module")
def data():
    """Sixteen bits would do for each number, so that no conversion rounds."""
    x, y = line(n=200)
    return np.round(x * 256) / 256, np.round(y * 256) / 256


@pytest.fixture(scope="module")
def fitted(data):
    return lb.fit(regression, *data, method=METHOD)


def mapped(array, folder, name):
    np.save(folder / f"{name}.npy", array)
    return np.load(folder / f"{name}.npy", mmap_mode="r")


KINDS = {
    "fortran": lambda x, y, folder: (np.asfortranarray(x), y[::-1].copy()[::-1]),
    "float32": lambda x, y, folder: (x.astype(np.float32), y.astype(np.float32)),
    "big endian": lambda x, y, folder: (x.astype(">f8"), y),
    "jax": lambda x, y, folder: (jnp.asarray(x), jnp.asarray(y)),
    "memmap": lambda x, y, folder: (mapped(x, folder, "x"), mapped(y, folder, "y")),
    "pandas": lambda x, y, folder: (pd.DataFrame(x, columns=["a", "b"]), pd.Series(y)),
    "polars": lambda x, y, folder: (pl.DataFrame({"a": x[:, 0], "b": x[:, 1]}), pl.Series(y)),
    "arrow": lambda x, y, folder: (pa.table({"a": x[:, 0], "b": x[:, 1]}), pa.array(y)),
    "sparse": lambda x, y, folder: (scipy.sparse.csr_matrix(x), y),
    "no mask": lambda x, y, folder: (np.ma.array(x), np.ma.array(y)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_array_gives_the_same_numbers(kind, data, fitted, tmp_path):
    fit = lb.fit(regression, *KINDS[kind](*data, tmp_path), method=METHOD)
    for mine, other in zip(fit.q.parameters, fitted.q.parameters, strict=True):
        for name in mine:
            np.testing.assert_array_equal(mine[name], other[name])
    assert fit.elbo == fitted.elbo
    np.testing.assert_array_equal(fit.history.elbo, fitted.history.elbo)


def test_a_table_that_is_streamed_gives_the_same_numbers(data, fitted):
    x, y = data
    table = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "target": y})
    stream = lb.stream(table, x=["a", "b"], y="target")
    fit = lb.fit(regression, **stream, method=METHOD)
    assert fit.elbo == fitted.elbo


class Again:
    """Batches that can be read again."""

    def __init__(self, x, y, size):
        self.parts = [(x[i : i + size], y[i : i + size]) for i in range(0, len(x), size)]

    def __iter__(self):
        return ({"x": x, "y": y} for x, y in self.parts)


@pytest.mark.parametrize("kind", ["one row group", "many row groups", "batches"])
def test_streams_have_an_order_of_their_own_and_the_same_posterior(kind, data, tmp_path):
    x, y = data
    exact = lb.fit(regression, x, y)
    if kind == "batches":
        stream = lb.stream(Again(x, y, 30), total=200)
    else:
        table = pa.table({"a": x[:, 0], "b": x[:, 1], "target": y})
        size = 200 if kind == "one row group" else 25
        pq.write_table(table, tmp_path / "rows.parquet", row_group_size=size)
        stream = lb.stream(tmp_path / "rows.parquet", x=["a", "b"], y="target")
    fit = lb.fit(regression, **stream, method=EXACT)
    np.testing.assert_allclose(fit.mean("beta"), exact.mean("beta"), rtol=1e-9)
    np.testing.assert_allclose(fit.sd("beta"), exact.sd("beta"), rtol=1e-9)
    np.testing.assert_allclose(fit.mean("tau"), exact.mean("tau"), rtol=1e-9)
    np.testing.assert_allclose(fit.elbo, exact.elbo, rtol=1e-10)
    assert fit.elbo_error == 0.0


def test_single_precision(data, fitted):
    """The sums of rows are kept in double precision: errors of about 1e-7 per number."""
    method = lb.SVI(batch_size=40, steps=20, forgetting=0.7, monitor=None)
    with lb.computing(precision="float32"):
        fit = lb.fit(regression, *data, method=method)
    assert fit.precision == "float32"
    assert fitted.precision == "float64"
    np.testing.assert_allclose(fit.mean("beta"), fitted.mean("beta"), rtol=1e-5)
    np.testing.assert_allclose(fit.elbo, fitted.elbo, rtol=1e-5)
    assert fit.elbo != fitted.elbo


# --------------------------------------------------------------------------------------------------
# Missing entries


@pytest.mark.parametrize(
    "method",
    [
        lb.SVI(batch_size=40, steps=15, forgetting=1.0, monitor=None),
        lb.Memoized(batch_size=40, visits=5),
    ],
)
@pytest.mark.parametrize("count", [1, 60])
@pytest.mark.parametrize("filler", [np.nan, 99.0])
def test_missing_entries_do_not_count_in_whichever_batch_they_are(method, count, filler):
    """With one missing entry in 200, the first batch of 40 rows rarely shows it."""
    y = np.random.default_rng(0).normal(size=200) + 1.0
    for seed in range(3):
        mask = np.zeros(200, bool)
        mask[np.random.default_rng(seed).choice(200, count, replace=False)] = True
        rows = np.ma.array(np.where(mask, filler, y), mask=mask)
        fit = lb.fit(level, rows, method=method, seed=seed)
        left = y[~mask]
        np.testing.assert_allclose(fit.mean("mu"), left.sum() / (len(left) + 1), rtol=1e-10)
        np.testing.assert_allclose(fit.sd("mu"), (len(left) + 1) ** -0.5, rtol=1e-10)
        assert "Site 'y' has missing entries; they are integrated out." in str(fit.plan)


def test_missing_entries_of_a_stream_of_batches():
    y = np.random.default_rng(0).normal(size=200)
    mask = np.arange(200) == 170
    rows = np.ma.array(np.where(mask, np.nan, y), mask=mask)
    stream = lb.stream([{"y": rows[:100]}, {"y": rows[100:]}], total=200)
    fit = lb.fit(level, **stream, method=EXACT)
    np.testing.assert_allclose(fit.mean("mu"), y[~mask].sum() / 200, rtol=1e-10)


def test_two_arguments_keep_their_own_missing_entries():
    """In the first batch they have the same ones."""

    def both(y, u):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        nu = numpyro.sample("nu", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)
            numpyro.sample("u", dist.Normal(nu, 1.0), obs=u)

    rng = np.random.default_rng(0)
    y, u = rng.normal(size=(2, 60))
    mask = {"y": np.isin(np.arange(60), (5, 30)), "u": np.isin(np.arange(60), (5, 41, 50))}
    rows = np.ma.array(y, mask=mask["y"]), np.ma.array(u, mask=mask["u"])
    # Visits are in the order of the rows.
    fit = lb.fit(both, *rows, method=lb.Memoized(batch_size=20, visits=3))
    np.testing.assert_allclose(fit.mean("mu"), y[~mask["y"]].sum() / 59, rtol=1e-10)
    np.testing.assert_allclose(fit.mean("nu"), u[~mask["u"]].sum() / 58, rtol=1e-10)


def test_missing_entries_that_belong_to_no_single_argument_are_refused():
    def sums(y, u):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("s", dist.Normal(mu, 1.0), obs=y + u)

    rng = np.random.default_rng(0)
    y = np.ma.array(rng.normal(size=60), mask=np.arange(60) == 3)
    u = np.ma.array(rng.normal(size=60), mask=np.arange(60) == 4)
    with pytest.raises(errors.ArgumentError) as caught:
        lb.fit(sums, y, u, method=lb.SVI(batch_size=20, monitor=None))
    assert str(caught.value) == (
        "Site 's' has missing entries that are not those of one argument.\nExpected a masked array "
        "that the site observes as it is; or use method=lb.CAVI()."
    )
