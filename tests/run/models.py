"""Small models and data shared by the tests of `fit`."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist


def mixture(x, K):
    """A diagonal mixture with unknown precisions (paper, appendix B)."""
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(K)))
    with numpyro.plate("components", K):
        tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0).expand([x.shape[1]]).to_event(1))
        mu = numpyro.sample("mu", dist.Normal(0.0, 1 / jnp.sqrt(0.1 * tau)).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        z = numpyro.sample("z", dist.Categorical(pi))
        numpyro.sample("x", dist.Normal(mu[z], 1 / jnp.sqrt(tau[z])).to_event(1), obs=x)


def regression(x, y=None):
    """Linear regression with a Normal-Gamma prior; its posterior is exact."""
    tau = numpyro.sample("tau", dist.Gamma(3.0, 2.0))
    with numpyro.plate("columns", x.shape[1]):
        beta = numpyro.sample("beta", dist.Normal(0.0, 1 / jnp.sqrt(tau)))
    mean = numpyro.deterministic("mean", x @ beta)
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(mean, 1 / jnp.sqrt(tau)), obs=y)


def clusters(seed=0, n=60):
    """Three well separated clusters in the plane, and their labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=n)
    centres = np.array([[-4.0, 0.0], [4.0, 0.0], [0.0, 5.0]])
    return centres[labels] + rng.normal(size=(n, 2)) * 0.7, labels


def line(seed=0, n=40):
    """Rows of a regression with two columns."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    return x, x @ np.array([1.0, -2.0]) + 0.5 * rng.normal(size=n)


def topics(w, K=2, V=6):
    """Latent Dirichlet allocation (alg:cavi_lda): two local factors that depend on each other."""
    with numpyro.plate("topics", K):
        beta = numpyro.sample("beta", dist.Dirichlet(0.5 * jnp.ones(V)))
    with numpyro.plate("documents", w.shape[0], dim=-2):
        theta = numpyro.sample("theta", dist.Dirichlet(0.5 * jnp.ones(K)))
        with numpyro.plate("words", w.shape[1], dim=-1):
            z = numpyro.sample("z", dist.Categorical(theta))
            numpyro.sample("w", dist.Categorical(beta[z]), obs=w)


def repeated(y):
    """Repeated measurements of units whose levels vary: plates in one another."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    lam = numpyro.sample("lam", dist.Gamma(2.0, 2.0))
    tau = numpyro.sample("tau", dist.Gamma(2.0, 2.0))
    with numpyro.plate("units", y.shape[0], dim=-2):
        level = numpyro.sample("level", dist.Normal(mu, 1 / jnp.sqrt(lam)))
        with numpyro.plate("times", y.shape[1], dim=-1):
            numpyro.sample("y", dist.Normal(level, 1 / jnp.sqrt(tau)), obs=y)


def grouped(y, g, G=4):
    """Effects of groups, each row naming its own: a global site indexed by data."""
    tau = numpyro.sample("tau", dist.Gamma(2.0, 2.0))
    with numpyro.plate("groups", G):
        a = numpyro.sample("a", dist.Normal(0.0, 5.0))
    numpyro.deterministic("spread", a.max() - a.min())
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(a[g], 1 / jnp.sqrt(tau)), obs=y)


def intercept_and_slopes(x, y):
    """Regression whose intercept and slopes, sites of their own, share one Gaussian factor."""
    tau = numpyro.sample("tau", dist.Gamma(3.0, 2.0))
    alpha = numpyro.sample("alpha", dist.Normal(0.0, 5.0))
    beta = numpyro.sample("beta", dist.Normal(0.0, 5.0).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(alpha + x @ beta, 1 / jnp.sqrt(tau)), obs=y)


def level(y):
    """An unknown mean with a known variance; its posterior is Normal(sum y / (n + 1), 1 / (n + 1)).

    Whole passes with steps 1/t average the targets of all batches, which gives it exactly.
    """
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def words(seed=0, n=120, length=12):
    """Documents of two topics that share one word of six."""
    rng = np.random.default_rng(seed)
    beta = np.array([[0.5, 0.3, 0.2, 0.0, 0.0, 0.0], [0.0, 0.0, 0.1, 0.2, 0.3, 0.4]])
    theta = rng.dirichlet([0.5, 0.5], size=n)
    return np.stack([rng.choice(6, size=length, p=p) for p in theta @ beta])


def measurements(seed=0, n=240, times=3):
    """Units around 2, measured several times."""
    rng = np.random.default_rng(seed)
    return 2.0 + rng.normal(size=(n, 1)) + 0.5 * rng.normal(size=(n, times))


def groups(seed=0, n=240):
    """Rows of four groups of unequal sizes, and the group of each."""
    rng = np.random.default_rng(seed)
    g = rng.choice(4, size=n, p=[0.4, 0.3, 0.2, 0.1])
    return np.array([-1.0, 0.0, 1.0, 3.0])[g] + 0.7 * rng.normal(size=n), g
