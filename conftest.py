"""What examples in docstrings may use: `lb`, `np`, `jax`, the program and data of `lb.fit`'s."""

from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _names_of_examples(request: pytest.FixtureRequest) -> None:
    """The names of an example in a docstring, and a folder of its own to write to."""
    if not isinstance(request.node, pytest.DoctestItem):
        return
    import jax
    import matplotlib
    import numpy as np
    import numpyro
    import numpyro.distributions as dist

    import lowerbound as lb

    matplotlib.use("agg")

    def coin(y: Any) -> None:
        p = numpyro.sample("p", dist.Beta(1.0, 1.0))
        with numpyro.plate("tosses", len(y)):
            numpyro.sample("y", dist.Bernoulli(p), obs=y)

    def pair(x: Any) -> None:
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
        with numpyro.plate("data", len(x)):
            c = numpyro.sample("c", dist.Categorical(np.full(2, 0.5)))
            numpyro.sample("x", dist.Normal(mu[c], 1.0), obs=x)

    names = request.getfixturevalue("doctest_namespace")
    names.update(lb=lb, np=np, jax=jax, coin=coin, pair=pair, y=np.array([1, 0, 1, 1]))
    request.getfixturevalue("monkeypatch").chdir(request.getfixturevalue("tmp_path"))
