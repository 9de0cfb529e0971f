"""Several summits: labels, signs, masses that differ, frequencies, angles."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import gammaln

from benchmarks.known_posteriors.case import (
    Case,
    Truth,
    log_normal,
    mixed,
    named,
    normal_means,
    on_grid,
    on_mesh,
    states,
    weighed,
)


def cases() -> dict[str, Case]:
    """All of them, by name."""
    return _mixtures() | _signs() | _masses() | _waves()


def _mixtures() -> dict[str, Case]:
    """Components without names of their own: a truth up to labels, where they do not touch."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    import lowerbound.names as lb

    def mixture(x: Any, k: int) -> None:
        w = numpyro.sample("w", dist.Dirichlet(jnp.ones(k)))
        with numpyro.plate("components", k):
            mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
        with numpyro.plate("rows", len(x)):
            c = numpyro.sample("c", dist.Categorical(w))
            numpyro.sample("x", dist.Normal(mu[c], 1.0), obs=x)

    rng = np.random.default_rng(1)
    sizes, places = np.array([24, 12, 36, 8]), np.array([-15.0, -6.0, 4.0, 14.0])
    x = np.concatenate([rng.normal(m, 1, n) for m, n in zip(places, sizes, strict=True)])
    sums = np.array([part.sum() for part in np.split(x, np.cumsum(sizes)[:-1])])
    alpha, total = sizes + 1.0, sizes.sum() + 4.0

    def apart(fit: Any) -> Truth:
        order = np.argsort(np.argsort(fit.mean("mu")))
        share = alpha / total
        mean, sd = sums / (sizes + 0.01), (sizes + 0.01) ** -0.5
        sd_w = np.sqrt(share * (1 - share) / (total + 1))
        return {"mu": (mean[order], sd[order]), "w": (share[order], sd_w[order])}

    data = {"x": x, "k": 4}
    together = {"mu": np.array([-10.5, 3.5, 4.5, 14.0])}
    found = named("four clusters", mixture, apart, data, {
        "auto": "auto", "CAVI": lb.CAVI(), "ten restarts": lb.CAVI(restarts=10),
        "growing": lb.Growing(), "two as one": lb.CAVI(init=together),
        "all at once": lb.CAVI(init={"mu": np.full(4, 1.0)}),
        "three sweeps": lb.CAVI(init="random", max_sweeps=3),
        "batches": lb.SVI(batch_size=20, steps=400),
        "few batches": lb.SVI(batch_size=8, steps=4),
    })  # fmt: skip

    # Touching components change labels: the posterior is the same for all of them.
    few = np.concatenate([rng.normal(-1.0, 1, 6), rng.normal(1.2, 1, 6)])
    z = states(12, 2)
    log_p, mean, variance = normal_means(few, z, 2, 1.0, (0.0, 10.0))
    counts = np.stack([(z == k).sum(axis=1) for k in (0, 1)], 1)
    log_p = log_p + gammaln(counts + 1.0).sum(axis=1)
    truth = mixed(log_p, {"mu": (mean, variance)})
    found |= named("clusters that touch", mixture, truth, {"x": few, "k": 2}, {
        "auto": "auto", "CAVI": lb.CAVI(restarts=5), "growing": lb.Growing(),
    })  # fmt: skip
    return found


def _signs() -> dict[str, Case]:
    """Products whose factors can change signs together."""
    import numpyro
    import numpyro.distributions as dist

    import lowerbound.names as lb

    def factor(x: Any) -> None:
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
        with numpyro.plate("rows", len(x)):
            z = numpyro.sample("z", dist.Normal(0.0, 1.0))
            numpyro.sample("x", dist.Normal(z[:, None] * w, 0.5).to_event(1), obs=x)

    rng = np.random.default_rng(2)
    x = rng.normal(size=(20, 1)) * np.array([1.0, -0.7]) + 0.5 * rng.normal(size=(20, 2))
    axis = np.linspace(-3, 3, 601)
    a, b = np.meshgrid(axis, axis, indexing="ij")
    # x has the covariance w w' + 0.25 I.
    norm = a**2 + b**2
    along = (x.T @ x)[0, 0] * a**2 + (x.T @ x)[1, 1] * b**2 + 2 * (x.T @ x)[0, 1] * a * b
    log_p = -0.5 * norm - 10 * np.log(norm + 0.25) + 0.5 * along / 0.25 / (norm + 0.25)
    truth = weighed(log_p.ravel(), {"w": np.stack([a.ravel(), b.ravel()], 1)})
    found = named("sign of a factor", factor, truth, {"x": x}, {
        "auto": "auto", "CAVI": lb.CAVI(), "Gaussian": lb.Gaussian(starts=1),
    })  # fmt: skip

    def product(y: Any) -> None:
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(a * b, 0.5).expand([len(y)]).to_event(1), obs=y)

    for name, place in (("far", 1.5), ("near", 0.3)):
        y = place + 0.5 * rng.normal(size=10)
        axes = {k: np.linspace(-5, 5, 1201) for k in "ab"}
        truth = on_mesh(
            lambda a, b, y=y: -0.5 * (a**2 + b**2) - 20 * (y.mean() - a * b) ** 2, **axes
        )
        found |= named(f"a product {name} from 0", product, truth, {"y": y}, {
            "auto": "auto", "CAVI": lb.CAVI(), "one start": lb.Gaussian(starts=1),
        })  # fmt: skip
    return found


def _masses() -> dict[str, Case]:
    """Two summits of unequal mass, one of them narrow."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    import lowerbound.names as lb

    def square(y: Any) -> None:
        z = numpyro.sample("z", dist.Normal(0.4, 1.0))
        numpyro.sample("y", dist.Normal(z**2, 0.5), obs=y)

    truth: Truth = {
        "z": on_grid(lambda z: log_normal(z, 0.4, 1.0) + log_normal(1.5, z**2, 0.5), -6, 6)
    }
    data = {"y": np.array(1.5)}
    found = named("a square", square, truth, data, {
        "auto": "auto", "one start": lb.Gaussian(starts=1), "Laplace": lb.Laplace(starts=1),
        "from the lesser": lb.Gaussian(starts=1, init={"z": -1.2}),
    })  # fmt: skip

    def cauchy(y: Any) -> None:
        m = numpyro.sample("m", dist.Normal(0.0, 20.0))
        numpyro.sample("y", dist.Cauchy(m, 0.5).expand([len(y)]).to_event(1), obs=y)

    y = np.array([-6.0, -5.6, 5.8, 6.2, 6.3])

    def height(m: np.ndarray) -> np.ndarray:
        tails: np.ndarray = -np.log1p(((y[:, None] - m) / 0.5) ** 2).sum(axis=0)
        return tails + log_normal(m, 0.0, 20.0)

    truth = {"m": on_grid(height, -80, 80)}
    found |= named("two groups of outliers", cauchy, truth, {"y": y}, {
        "auto": "auto", "one start": lb.Gaussian(starts=1),
        "from the lesser": lb.Laplace(starts=1, init={"m": -5.8}), "CAVI": lb.CAVI(),
    })  # fmt: skip

    def spike() -> None:
        law = dist.MixtureSameFamily(
            dist.Categorical(probs=jnp.array([0.7, 0.3])),
            dist.Normal(jnp.array([0.0, 6.0]), jnp.array([2.0, 0.05])),
        )
        numpyro.sample("z", law)

    mean = 0.3 * 6
    sd = float(np.sqrt(0.7 * 4 + 0.3 * (0.0025 + 36) - mean**2))
    found |= named("a spike beside a hill", spike, {"z": (mean, sd)}, {}, {
        "auto": "auto", "one start": lb.Gaussian(starts=1),
        "on the hill": lb.Gaussian(starts=1, init={"z": 0.0}),
    })  # fmt: skip
    return found


def _waves() -> dict[str, Case]:
    """A frequency, and an angle beside the cut of its circle."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    import lowerbound.names as lb

    t = np.linspace(0, 6, 25)
    rng = np.random.default_rng(3)
    y = np.sin(2.6 * t) + 0.8 * rng.normal(size=25)

    def wave(t: Any, y: Any) -> None:
        f = numpyro.sample("f", dist.Uniform(0.0, 10.0))
        numpyro.sample("y", dist.Normal(jnp.sin(f * t), 0.8).to_event(1), obs=y)

    def height(f: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.concatenate(
            [-0.5 * ((y[:, None] - np.sin(t[:, None] * part)) ** 2).sum(axis=0) / 0.64
             for part in np.array_split(f, 50)]
        )  # fmt: skip
        return found

    found = named("a frequency", wave, {"f": on_grid(height, 0, 10)}, {"t": t, "y": y}, {
        "auto": "auto", "one start": lb.Gaussian(starts=1, init={"f": 6.5}),
    })  # fmt: skip

    def angle(y: Any) -> None:
        a = numpyro.sample("a", dist.Uniform(-np.pi, np.pi))
        numpyro.sample("y", dist.VonMises(a, 2.0).expand([len(y)]).to_event(1), obs=y)

    y = np.pi + rng.vonmises(0.15, 2.0, 6)
    y = (y + np.pi) % (2 * np.pi) - np.pi
    truth = {"a": on_grid(lambda a: 2 * np.cos(y[:, None] - a).sum(axis=0), -np.pi, np.pi)}
    found |= named("an angle at its cut", angle, truth, {"y": y}, {
        "auto": "auto", "Gaussian": lb.Gaussian(starts=1),
    })  # fmt: skip
    return found
