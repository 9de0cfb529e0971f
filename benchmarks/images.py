"""The paper's image task (section 3.4): colour histograms, 10,000 to fit, 10,000 held out."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

ROWS, COMPONENTS = 10_000, 30
PATH = Path(__file__).resolve().parents[2] / "shared" / "data" / "images" / "debian_rgb192_hist.npz"


def load(rows: int = ROWS, dimensions: int = 576) -> tuple[np.ndarray, np.ndarray]:
    """Training and held-out histograms: sqrt(count / pixels), standardised by the training rows.

    Shapes (rows, 576) each. Without the file, a simulated mixture of the same shape.
    """
    if not PATH.exists():
        print(f"{PATH.name} is absent (looked in {PATH.parent}): simulated data of the same shape.")
        random = np.random.default_rng(0)
        centres = random.normal(size=(COMPONENTS, dimensions))
        scales = random.gamma(2.0, 0.4, size=(COMPONENTS, dimensions))
        z = random.integers(COMPONENTS, size=2 * rows)
        whole = centres[z] + scales[z] * random.normal(size=(2 * rows, dimensions))
    else:
        with np.load(PATH) as file:
            order = np.random.default_rng(0).permutation(len(file["npix"]))[: 2 * rows]
            whole = np.sqrt(file["counts"][order] / file["npix"][order][:, None])
    train, test = whole[:rows], whole[rows:]
    mean, sd = train.mean(axis=0), train.std(axis=0)
    sd = np.where(sd > 0, sd, 1.0)
    return (train - mean) / sd, (test - mean) / sd


def model(x, K=COMPONENTS, m0=0.0, b0=1.0, alpha0=1.0, beta0=1.0):
    """The diagonal mixture of Appendix B at the paper's prior, a0 = 1/K."""
    n, D = x.shape
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.full(K, 1.0 / K)))
    with numpyro.plate("components", K, dim=-2), numpyro.plate("dimensions", D, dim=-1):
        tau = numpyro.sample("tau", dist.Gamma(alpha0, beta0))
        mu = numpyro.sample("mu", dist.Normal(m0, 1 / jnp.sqrt(b0 * tau)))
    with numpyro.plate("data", n):
        z = numpyro.sample("z", dist.Categorical(pi))
        numpyro.sample("x", dist.Normal(mu[z], 1 / jnp.sqrt(tau[z])).to_event(1), obs=x)


def start(x: np.ndarray, K: int = COMPONENTS, seed: int = 0) -> dict[str, np.ndarray]:
    """Point values to start from: K rows of the data as centres, unit precision, equal weights."""
    rows = np.random.default_rng(seed).choice(len(x), K, replace=False)
    return {"pi": np.full(K, 1.0 / K), "mu": x[rows], "tau": np.ones((K, x.shape[1]))}
