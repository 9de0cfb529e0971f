"""The quadrature step is non-conjugate variational message passing (Knowles and Minka 2011).

Each factor f of the joint sends the message F(lambda)^-1 dE_q[log f] / dlambda, F the Fisher
information of q; the natural parameter of q is the sum of the messages where they come to rest.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.compiled import quickly

RNG = np.random.default_rng(2)
X = RNG.standard_normal((12, 2))
PREDICTOR = X @ np.array([1.0, -0.5])
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)


def log_factors(kind, beta, y):
    """The logarithms of all factors at one beta: one for each row, and the prior."""
    a = X @ beta
    rows = y * a - (jnp.logaddexp(0.0, a) if kind == "logistic" else jnp.exp(a))
    prior = -0.5 * beta @ beta / 4.0
    return jnp.concatenate([rows, prior[None]])


def gaussian(natural):
    """Mean and covariance of the natural parameter (P m, -P11 / 2, -P12, -P22 / 2)."""
    P = -jnp.array([[2 * natural[2], natural[3]], [natural[3], 2 * natural[4]]])
    covariance = jnp.linalg.inv(P)
    return covariance @ natural[:2], covariance


def log_normaliser(natural):
    mean, covariance = gaussian(natural)
    return 0.5 * natural[:2] @ mean + 0.5 * jnp.linalg.slogdet(covariance)[1]


@pytest.mark.parametrize("kind", ["logistic", "Poisson"])
def test_the_natural_parameter_is_the_sum_of_the_messages(kind):
    likelihood = {"logistic": lambda a: dist.Bernoulli(logits=a),
                  "Poisson": lambda a: dist.Poisson(jnp.exp(a))}[kind]  # fmt: skip
    y = 1 * (PREDICTOR > 0.2) if kind == "logistic" else RNG.poisson(np.exp(PREDICTOR))

    def model(y):
        beta = numpyro.sample("beta", dist.Normal(jnp.zeros(2), 2.0).to_event(1))
        numpyro.sample("y", likelihood(X @ beta), obs=y)

    fit = lb.fit(model, y, method=lb.CAVI(tolerance=1e-14))
    law = fit.posterior["beta"]
    P = np.linalg.inv(np.asarray(law.covariance_matrix))
    natural = np.array([*(P @ law.mean), -P[0, 0] / 2, -P[0, 1], -P[1, 1] / 2])
    with jax.enable_x64(True):

        def expected(natural):
            mean, covariance = gaussian(natural)
            root = jnp.linalg.cholesky(covariance)
            pairs = np.stack(np.meshgrid(NODES, NODES), -1).reshape(-1, 2)
            weights = np.outer(WEIGHTS, WEIGHTS).ravel() / (2 * np.pi)
            points = mean + pairs @ root.T
            return weights @ jax.vmap(lambda beta: log_factors(kind, beta, y))(points)

        fisher, slopes = quickly(
            lambda n: (jax.hessian(log_normaliser)(n), jax.jacfwd(expected)(n))
        )(natural)
        messages = np.linalg.solve(fisher, slopes.T)  # one column for each factor
    # The step that rounding allows: the square root of that of the ELBO.
    np.testing.assert_allclose(messages.sum(axis=1), natural, rtol=1e-4, atol=1e-5)
    assert np.abs(messages[:, :-1]).max() > 0.1  # the data do speak
