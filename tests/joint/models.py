"""Small models, one for each decision about blocks."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist


def diagonal_mixture(x: Any, K: int = 3) -> None:
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(K)))
    with numpyro.plate("dim", x.shape[1]), numpyro.plate("clusters", K):
        tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0 / jnp.sqrt(0.5 * tau)))
    with numpyro.plate("data", len(x)):
        c = numpyro.sample("c", dist.Categorical(pi))
        numpyro.sample("x", dist.Normal(mu[c], 1.0 / jnp.sqrt(tau[c])).to_event(1), obs=x)


def spherical_mixture(x: Any, K: int = 3) -> None:
    tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0).expand([K]).to_event(1))
    scale = 1.0 / jnp.sqrt(tau)
    mu = numpyro.sample("mu", dist.Normal(jnp.zeros((K, x.shape[1])), scale[:, None]).to_event(2))
    with numpyro.plate("data", len(x)):
        c = numpyro.sample("c", dist.Categorical(jnp.ones(K) / K))
        numpyro.sample("x", dist.Normal(mu[c], scale[c][:, None]).to_event(1), obs=x)


def shared_precision(x: Any, y: Any) -> None:
    tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    sd = jnp.sqrt(1.0 / tau)
    beta = numpyro.sample("beta", dist.Normal(0.0, 2.0 * sd).expand([x.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ beta, sd), obs=y)


def inverse_gamma_variance(y: Any) -> None:
    v = numpyro.sample("v", dist.InverseGamma(3.0, 2.0))
    mu = numpyro.sample("mu", dist.Normal(0.5, jnp.sqrt(4.0 * v)))
    numpyro.sample("y", dist.Normal(mu, v**0.5), obs=y)


def wishart_mixture(x: Any, K: int = 3) -> None:
    D = x.shape[1]
    with numpyro.plate("clusters", K):
        L = numpyro.sample("L", dist.Wishart(D + 2.0, jnp.eye(D)))
        mu = numpyro.sample("mu", dist.MultivariateNormal(jnp.zeros(D), precision_matrix=0.1 * L))
    with numpyro.plate("data", len(x)):
        c = numpyro.sample("c", dist.Categorical(jnp.ones(K) / K))
        numpyro.sample("x", dist.MultivariateNormal(mu[c], precision_matrix=L[c]), obs=x)


def multivariate_precision(x: Any) -> None:
    D = x.shape[1]
    L = numpyro.sample("L", dist.Wishart(D + 2.0, jnp.eye(D)))
    mu = numpyro.sample("mu", dist.MultivariateNormal(jnp.ones(D), precision_matrix=2.0 * L))
    numpyro.sample("x", dist.MultivariateNormal(mu, precision_matrix=L), obs=x)


def intercept_and_slopes(x: Any, y: Any) -> None:
    alpha = numpyro.sample("alpha", dist.Normal(0.0, 5.0))
    beta = numpyro.sample("beta", dist.Normal(0.0, 2.0).expand([x.shape[1]]).to_event(1))
    tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    numpyro.sample("y", dist.Normal(alpha + x @ beta, 1.0 / jnp.sqrt(tau)), obs=y)


def factorisation(x: Any, K: int = 2) -> None:
    n, m = x.shape
    U = numpyro.sample("U", dist.Normal(0.0, 1.0).expand([n, K]).to_event(2))
    V = numpyro.sample("V", dist.Normal(0.0, 1.0).expand([m, K]).to_event(2))
    tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    numpyro.sample("x", dist.Normal(U @ V.T, 1.0 / jnp.sqrt(tau)), obs=x)


def transposed_effects(x: Any, y: Any) -> None:
    """Coefficients (D, m): each of the m columns is a vector."""
    shape = [x.shape[1], y.shape[1]]
    beta = numpyro.sample("beta", dist.Normal(0.0, 2.0).expand(shape).to_event(2))
    tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    numpyro.sample("y", dist.Normal(x @ beta, 1.0 / jnp.sqrt(tau)), obs=y)


def crossed_effects(i: Any, j: Any, y: Any) -> None:
    m = numpyro.sample("m", dist.Normal(0.0, 3.0))
    a = numpyro.sample("a", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0).expand([4]).to_event(1))
    numpyro.sample("y", dist.Normal(m + a[i] + b[j], 0.5), obs=y)


def blockmodel(adjacency: Any, K: int = 2) -> None:
    """All ordered pairs, the diagonal included."""
    pi = numpyro.sample("pi", dist.Dirichlet(2.0 * jnp.ones(K)))
    B = numpyro.sample("B", dist.Beta(1.0, 2.0).expand([K, K]).to_event(2))
    z = numpyro.sample("z", dist.Categorical(pi).expand([len(adjacency)]))
    numpyro.sample("y", dist.Bernoulli(B[z[:, None], z[None, :]]), obs=adjacency)


def truncated(x: Any, y: Any, side: str = "above") -> None:
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("data", len(y)):
        z = numpyro.sample("z", dist.Normal(x @ beta, 1.0))
        match side:
            case "above":
                event = z > 0
            case "below":
                event = z < 0
            case "mirrored":
                event = z > 0.0
            case _:
                event = z >= 0
        numpyro.sample("y", dist.Delta(event.astype(int)), obs=y)


def poisson_sums(y: Any, axis: int = 0) -> None:
    shape = (3, 4, 5)
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0).expand([3, 1, 5]).to_event(3))
    n = numpyro.sample("n", dist.Poisson(rate).expand(shape).to_event(3))
    numpyro.sample("y", dist.Delta(n.sum(axis)).to_event(2), obs=1.0 * y)


def swapped_normal_gamma(x: Any) -> None:
    """Means (D, K) and precisions (K,) with D = K: only one of the two axes is the precision's."""
    K = x.shape[1]
    tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0).expand([K]).to_event(1))
    sd = 1.0 / jnp.sqrt(tau)
    mu = numpyro.sample("mu", dist.Normal(jnp.zeros((K, K)), sd).to_event(2))
    c = numpyro.sample("c", dist.Categorical(jnp.ones(K) / K).expand([len(x)]))
    numpyro.sample("x", dist.Normal(mu[:, c].T, sd[c][:, None]), obs=x)


def swapped_normal_wishart(x: Any) -> None:
    """Means (D, K) with D = K: the vector axis comes first, so the axes of L do not match."""
    K = x.shape[1]
    L = numpyro.sample("L", dist.Wishart(K + 2.0, jnp.eye(K)).expand([K]).to_event(1))
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0).expand([K, K]).to_event(2))
    c = numpyro.sample("c", dist.Categorical(jnp.ones(K) / K).expand([len(x)]))
    numpyro.sample("x", dist.MultivariateNormal(mu.T[c], precision_matrix=L[c]), obs=x)


def distances(i: Any, j: Any, y: Any) -> None:
    """Elements of one Gaussian site meet: every axis that differs is a vector axis."""
    u = numpyro.sample("u", dist.Normal(0.0, 1.0).expand([4, 2]).to_event(2))
    numpyro.sample("y", dist.Normal(u[i] - u[j], 0.5), obs=y)


def random_walk(y: Any) -> None:
    tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    steps = numpyro.sample("steps", dist.Normal(0.0, 0.3).expand([len(y)]).to_event(1))
    numpyro.sample("y", dist.Normal(jnp.cumsum(steps), 1.0 / jnp.sqrt(tau)), obs=y)


def markov_chain(y: Any, K: int = 2) -> None:
    """Neighbours of one discrete site meet in one term."""
    P = numpyro.sample("P", dist.Dirichlet(jnp.ones((K, K)) + jnp.eye(K)))
    mu = numpyro.sample("mu", dist.Normal(0.0, 3.0).expand([K]).to_event(1))
    z = numpyro.sample("z", dist.Categorical(jnp.ones(K) / K).expand([len(y)]))
    numpyro.factor("chain", jnp.log(P)[z[:-1], z[1:]].sum())
    numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)


def scalar_switch(y: Any) -> None:
    """One discrete latent chooses among the means of all data."""
    mu = numpyro.sample("mu", dist.Normal(jnp.array([-1.0, 2.0]), 1.0).to_event(1))
    z = numpyro.sample("z", dist.Categorical(jnp.array([0.4, 0.6])))
    numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)


def stacked(x: Any, y: Any) -> None:
    """Parameters gathered from separate sites by stack and concatenate."""
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    beta = jnp.concatenate([jnp.stack([a, b]), jnp.zeros(1)])
    numpyro.sample("y", dist.Normal(jnp.column_stack([x, x[:, 0]]) @ beta, 1.0), obs=y)
