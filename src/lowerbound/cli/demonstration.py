"""The demonstration: the paper's two-dimensional mixture, as files that `lowerbound fit` takes."""

from __future__ import annotations

from pathlib import Path

from lowerbound.data import paper_mixture

MODEL = '''"""The diagonal Gaussian mixture of the paper's Appendix B."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist


def mixture(x, K):
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(K)))
    with numpyro.plate("components", K, dim=-2), numpyro.plate("axes", x.shape[1], dim=-1):
        tau = numpyro.sample("tau", dist.Gamma(1.0, 1.0))
        mu = numpyro.sample("mu", dist.Normal(0.0, 10 / jnp.sqrt(tau)))
    with numpyro.plate("data", len(x)):
        c = numpyro.sample("c", dist.Categorical(pi))
        numpyro.sample("x", dist.Normal(mu[c], 1 / jnp.sqrt(tau[c])).to_event(1), obs=x)
'''


def write_demonstration(folder: Path, rows: int = 1000) -> list[str]:
    """Write the model and its data; returns the words of the command that fits them."""
    import pandas as pd

    folder.mkdir(parents=True, exist_ok=True)
    model, data = folder / "mixture.py", folder / "points.csv"
    model.write_text(MODEL, encoding="utf-8")
    points = paper_mixture(n=rows)["x"]
    pd.DataFrame(points, columns=["a", "b"]).to_csv(data, index=False)
    words = ["fit", f"{model}:mixture", str(data), "--column", "x=a,b", "--arg", "K=5"]
    return [*words, "--out", str(folder / "run")]
