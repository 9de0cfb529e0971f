"""Programs whose arguments hold text, dates or objects: codes are made of them in Python."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import polars as pl
import pytest

import lowerbound as lb
from lowerbound.errors import DataTypeError

NAMES = np.array(["oak", "elm", "oak", "ash", "elm", "oak"])
Y = np.array([1.0, 2.0, 1.5, -0.5, 2.5, 1.2])
TABLE = pd.DataFrame({"tree": NAMES, "day": pd.date_range("2020-01-01", periods=6), "y": Y})


def effects(codes, count, y):
    with numpyro.plate("groups", count):
        a = numpyro.sample("a", dist.Normal(0.0, 2.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(a[codes], 1.0), obs=jnp.asarray(y))


def by_array(names, y):
    groups, codes = np.unique(names, return_inverse=True)
    effects(codes, len(groups), y)


def by_list(names, y):
    groups = sorted(set(names))
    effects(np.array([groups.index(name) for name in names]), len(groups), y)


def by_table(table):
    codes, groups = pd.factorize(table["tree"], sort=True)
    effects(codes, len(groups), table["y"].to_numpy())


def by_category(names, y):
    effects(names.cat.codes.to_numpy(), len(names.cat.categories), y)


def by_polars(table):
    groups, codes = np.unique(table["tree"].to_numpy(), return_inverse=True)
    effects(codes, len(groups), table["y"].to_numpy())


CALLS = [
    (by_array, (NAMES, Y)),
    (by_list, (NAMES, Y)),
    (by_table, (TABLE,)),
    (by_category, (TABLE["tree"].astype("category"), Y)),
    (by_polars, (pl.DataFrame({"tree": NAMES, "y": Y}),)),
]


@pytest.mark.parametrize(("model", "args"), CALLS, ids=[model.__name__ for model, _ in CALLS])
def test_groups_of_text_are_groups(model, args):
    fit = lb.fit(model, *args)
    members = np.unique(NAMES)[:, None] == NAMES
    np.testing.assert_allclose(
        fit.posterior["a"].mean, members @ Y / (members.sum(1) + 0.25), rtol=1e-6
    )


def test_other_text_is_another_program():
    lb.fit(by_array, NAMES, Y)
    turned = lb.fit(by_array, NAMES[::-1], Y).posterior["a"].mean
    np.testing.assert_allclose(turned, lb.fit(by_array, NAMES, Y[::-1]).posterior["a"].mean)


def test_times_counted_from_dates():
    def trend(table):
        days = (table["day"] - table["day"].min()).dt.days.to_numpy()
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(slope * days, 1.0), obs=table["y"].to_numpy())

    days = np.arange(6)
    mean = lb.fit(trend, TABLE).posterior["slope"].mean
    np.testing.assert_allclose(mean, days @ Y / (days @ days + 1.0), rtol=1e-6)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (NAMES, "dtype <U3, shape .6,.*Convert it to numbers"),
        (NAMES.astype(object), "dtype object, shape .6,.*Convert it to numbers"),
        (np.array(["2020-01-01"] * 6, "datetime64[D]"), "dtype datetime.*from a reference date"),
    ],
    ids=["text", "objects", "dates"],
)
def test_text_where_a_number_is_needed_is_named(names, words):
    def slope(x, y):
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(b * x, 1.0), obs=y)

    with pytest.raises(DataTypeError, match=f"(?s)Argument 'x' has {words}"):
        lb.fit(slope, names, Y)


def test_a_fit_of_text_goes_on_from_its_file(tmp_path):
    lb.fit(by_array, NAMES, Y, checkpoint=tmp_path / "run", method=lb.CAVI())
    again = lb.resume(tmp_path / "run", by_array, NAMES, Y)
    assert again.converged
    lb.fit(by_array, NAMES, Y).save(tmp_path / "fit")
    kept = lb.load(tmp_path / "fit", by_array, NAMES, Y)
    assert kept.predictive(NAMES[:4], Y[:4], draws=3)["y"].shape == (3, 4)
