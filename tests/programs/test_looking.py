"""Programs that look at the values of their data in Python fit as those that do not."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lowerbound as lb
from lowerbound import errors
from lowerbound.model import trace_model

RNG = np.random.default_rng(0)
GROUP = np.repeat(np.arange(4), 5)
KIND = np.arange(4) % 2
Y = 2.0 * RNG.normal(size=4)[GROUP] + RNG.normal(size=20)
NAMES = {0: "a", 1: "b", 2: "c", 3: "d"}
KNOWN = jnp.asarray(GROUP)  # not an argument: a constant of the program


def written(group):
    copy = group.copy()
    copy[copy == 9] = 0
    return int(copy.max()) + 1


def grouped(count):
    def model(group, y):
        with numpyro.plate("groups", count(group)):
            mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(mu[group], 1.0), obs=y)

    return model


LOOKS = {
    "set": lambda g: len(set(g)),
    "dict": lambda g: len({NAMES[i] for i in g}),
    "dict by maximum": lambda g: {3: 4}[g.max()],
    "loop": lambda g: len({int(i) for i in g}),
    "item": lambda g: g[-1].item() + 1,
    "tolist": lambda g: max(g.tolist()) + 1,
    "int": lambda g: int(g.max()) + 1,
    "range": lambda g: len(range(g.max())) + 1,
    "format": lambda g: int(f"{g.max():d}") + 1,
    "jnp": lambda g: int(jnp.max(g)) + 1,
    "jnp.unique": lambda g: len(jnp.unique(g)),
    "bincount": lambda g: len(np.bincount(g)),
    "if": lambda g: 4 if g[-1] == 3 else 1,
    "write": written,
    "pandas": lambda g: pd.Series(g).nunique(),
    "factorize": lambda g: len(pd.factorize(g)[1]),
}


@pytest.mark.parametrize("look", LOOKS)
def test_the_argument_that_is_looked_at_is_a_constant_and_no_other(look):
    found = trace_model(grouped(LOOKS[look]), (GROUP, Y))
    assert found.concrete == ("group",)
    assert found.latent["mu"].shape == (4,)


def test_a_constant_that_is_looked_at_leaves_all_data_as_they_are():
    found = trace_model(grouped(lambda _: int(KNOWN.max()) + 1), (GROUP, Y))
    assert found.concrete == ()
    assert found.latent["mu"].shape == (4,)


def test_of_many_arguments_those_that_are_looked_at():
    def model(data):
        sizes = [len(np.unique(data[name])) for name in ("c", "f")]
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0).expand([sum(sizes)]))
        numpyro.sample("y", dist.Normal(mu.sum(), 1.0), obs=sum(data.values()))

    found = trace_model(model, (dict.fromkeys("abcdefghi", GROUP + 0.5),))
    assert found.concrete == ("data['c']", "data['f']")


def test_a_constant_array_is_indexed_by_a_latent_site():
    def model(levels, y):
        count = len(set(levels))
        p = numpyro.sample("p", dist.Dirichlet(jnp.ones(count)))
        with numpyro.plate("rows", len(y)):
            z = numpyro.sample("z", dist.Categorical(p))
            numpyro.sample("y", dist.Normal(levels[z], 1.0), obs=y)

    def plain(levels, y):
        p = numpyro.sample("p", dist.Dirichlet(jnp.ones(3)))
        with numpyro.plate("rows", len(y)):
            z = numpyro.sample("z", dist.Categorical(p))
            numpyro.sample("y", dist.Normal(levels[z], 1.0), obs=y)

    levels = np.array([-2.0, 0.0, 2.0])
    fits = [lb.fit(program, levels, Y) for program in (model, plain)]
    assert fits[0].elbo == pytest.approx(fits[1].elbo, rel=1e-9)


def nested(group, kind, y, looks):
    groups = len(np.unique(group)) if looks > 0 else 4
    kinds = len(set(kind)) if looks > 1 else 2
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfNormal(5.0))
    with numpyro.plate("kinds", kinds):
        m = numpyro.sample("m", dist.Normal(mu, tau))
    with numpyro.plate("groups", groups):
        a = numpyro.sample("a", dist.Normal(m[kind], tau))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(a[group], 1.0), obs=y)


@pytest.mark.parametrize("method", ["auto", lb.Gaussian()], ids=["auto", "Gaussian"])
def test_a_grid_and_a_gaussian_do_not_mind(method):
    plain, looking = (lb.fit(nested, GROUP, KIND, Y, n, method=method) for n in (0, 2))
    assert looking.elbo == pytest.approx(plain.elbo, rel=1e-9)
    assert looking.sd("tau") == pytest.approx(plain.sd("tau"), rel=1e-6)
    assert "The model inspects the values of group, kind" in str(
        lb.explain(nested, GROUP, KIND, Y, 2, method=method)
    )


TABLE = pd.DataFrame({"group": GROUP.astype(np.int16), "y": Y}, index=range(100, 120))
TABLES = {
    "pandas": TABLE,
    "polars": pl.DataFrame({"group": GROUP, "y": Y}),
    "pyarrow": pa.table({"group": GROUP, "y": Y}),
}


def by_name(table):
    group, y = (np.asarray(table[name]) for name in ("group", "y"))
    with numpyro.plate("groups", len(set(group))):
        mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(mu[group], 1.0), obs=y)


@pytest.mark.parametrize("kind", TABLES)
def test_columns_of_a_table_by_their_names(kind):
    fit = lb.fit(by_name, TABLES[kind])
    assert fit.elbo == pytest.approx(lb.fit(grouped(lambda _: 4), GROUP, Y).elbo, rel=1e-9)
    assert fit.predictive(TABLES[kind][:10], draws=3)["y"].shape == (3, 10)


@pytest.mark.parametrize("look", ["jnp", "if", "pandas"])
def test_new_rows_are_looked_at_as_well(look):
    fit = lb.fit(grouped(LOOKS[look]), GROUP, Y)
    assert fit.predictive(GROUP[::2], Y[::2], draws=3)["y"].shape == (3, 10)
    assert fit.log_predictive(GROUP[::2], Y[::2]).shape == (10,)


def test_new_rows_of_fewer_groups():
    fit = lb.fit(grouped(LOOKS["set"]), GROUP, Y)
    with pytest.raises(errors.ShapeError, match=r"shape .3,. with the new data, and .4,. in"):
        fit.log_predictive(GROUP[:15], Y[:15])


def test_a_table_is_as_its_author_made_it():
    def model(table, y):
        assert table.group.dtype == np.int16
        assert table.index[0] == 100
        assert y.name == "y"
        with numpyro.plate("groups", table["group"].nunique()):
            mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
        numpyro.sample("y", dist.Normal(mu[table.group.to_numpy()], 1.0), obs=y.to_numpy())

    assert lb.fit(model, TABLE, TABLE.y).converged
    assert lb.fit(model, TABLE, TABLE.y, method=lb.Gaussian()).converged


def test_a_column_that_there_is_not_is_an_error_of_the_program():
    def model(table):
        numpyro.sample("y", dist.Normal(numpyro.sample("m", dist.Cauchy()), 1), obs=table["x"])

    with pytest.raises(KeyError, match="x"):
        lb.fit(model, TABLE)


def test_sums_over_discrete_sites_do_not_mind():
    def mixture(group, y, looks):
        groups = len(set(group)) if looks else 4
        scale = numpyro.sample("scale", dist.HalfNormal(2.0))
        with numpyro.plate("groups", groups):
            mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
        with numpyro.plate("rows", len(y)):
            wide = numpyro.sample("wide", dist.Bernoulli(0.2))
            noise = jnp.where(wide == 1, 1.0 + scale, 1.0)
            numpyro.sample("y", dist.Normal(mu[group], noise), obs=y)

    plain, looking = (lb.fit(mixture, GROUP, Y, looks) for looks in (False, True))
    assert looking.elbo == pytest.approx(plain.elbo, rel=1e-8)


def test_maximised_parameters_do_not_mind():
    def model(group, y, looks):
        groups = len(set(group)) if looks else 4
        s = numpyro.param("s", 1.0, constraint=dist.constraints.positive)
        with numpyro.plate("groups", groups):
            mu = numpyro.sample("mu", dist.Normal(0.0, s))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(mu[group], 1.0), obs=y)

    plain, looking = (lb.fit(model, GROUP, Y, looks) for looks in (False, True))
    assert looking.elbo == pytest.approx(plain.elbo, rel=1e-9)


def test_an_error_of_the_program_is_shown_as_itself():
    def unhashable(y):
        {y.tolist()[0]: 1, [1]: 2}  # type: ignore[dict-item]

    def missing_key(y):
        return numpyro.sample("mu", dist.Normal(0.0, {"scale": 1.0}["sd"]))

    def later(y):
        len(set(y))
        raise RuntimeError("not that many")

    for program, kind, text in (
        (unhashable, TypeError, "unhashable type: 'list'"),
        (missing_key, KeyError, "'sd'"),
        (later, RuntimeError, "not that many"),
    ):
        with pytest.raises(kind) as caught:
            trace_model(program, (Y,))
        assert str(caught.value) == text


def test_a_latent_value_that_is_looked_at():
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal({0.0: 1.0}.get(mu, 2.0), 1.0), obs=y)

    with pytest.raises(errors.UnsupportedModelError) as caught:
        trace_model(model, (Y,))
    assert str(caught.value).startswith(
        "Python control flow, a Python number or a NumPy function depends on a latent value   "
        "(test_looking.py:"
    )
