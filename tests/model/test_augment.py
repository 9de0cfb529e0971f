"""Augmented programs: integrating the auxiliary site out gives back the density of the site."""

import inspect
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from scipy.special import gammaln, logsumexp

from lowerbound.errors import AugmentationError
from lowerbound.model import trace_model
from lowerbound.rewrite.augment import AUGMENTATIONS, augmented, possible
from lowerbound.rewrite.augmentations.softmax import Offset, SoftmaxGivenWeights


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def one_site(law, value):
    """A program of one site; each element of `value` is a copy of it."""
    size = np.shape(value)[: np.ndim(value) - len(law.event_shape)]
    if not law.batch_shape:
        law = law.expand(size)
    return lambda: numpyro.sample("y", law, obs=value)


def log_joint(law, choice, value, auxiliary, name):
    """log p(value | auxiliary) + log p(auxiliary) of every copy, as the augmented program says."""
    program = augmented(one_site(law, value), {"y": choice})
    with numpyro.validation_enabled(False):
        messages = handlers.trace(
            handlers.seed(handlers.substitute(program, {name: auxiliary}), 0)
        ).get_trace()
        assert list(messages) == [name, "y"]
        assert np.shape(messages[name]["value"]) == messages[name]["fn"].shape()
        return sum(np.asarray(m["fn"].log_prob(m["value"])) for m in messages.values())


def log_polya_gamma(x, n):
    """The log density of PG(n, 0), by its alternating series (Polson, Scott & Windle 2013)."""
    k = np.arange(400)[:, None]
    log_terms = gammaln(k + n) - gammaln(k + 1) + np.log(2 * k + n) - (2 * k + n) ** 2 / (8 * x)
    series = np.sum((-1.0) ** k * np.exp(log_terms), axis=0)
    scale = 2 ** (n - 1) / math.gamma(n) / np.sqrt(2 * np.pi * x**3)
    return np.log(np.maximum(scale * series, 1e-300))


U = np.linspace(-45.0, 45.0, 9001)  # the logarithm of the auxiliary variable
STEP = U[1] - U[0]


@pytest.mark.parametrize("y", [-3.0, 0.2, 40.0])
@pytest.mark.parametrize(
    "law", [dist.StudentT(3.5, 0.5, 2.0), dist.Cauchy(0.5, 2.0)], ids=["student", "cauchy"]
)
def test_student_weights_integrate_out(law, y):
    found = log_joint(law, "scale-mixture", np.full(U.shape, y), np.exp(U), "y:weight") + U
    np.testing.assert_allclose(logsumexp(found) + np.log(STEP), law.log_prob(y), rtol=1e-9)


@pytest.mark.parametrize("y", [-3.0, 0.2, 40.0])
def test_laplace_weights_integrate_out(y):
    law = dist.Laplace(0.5, 2.0)
    found = log_joint(law, "scale-mixture", np.full(U.shape, y), np.exp(U), "y:weight") + U
    levy = dist.InverseGamma(0.5, 0.5).log_prob(np.exp(U))  # the base measure of the weight
    np.testing.assert_allclose(logsumexp(found + levy) + np.log(STEP), law.log_prob(y), rtol=1e-9)


@pytest.mark.parametrize("y", [1e-3, 0.7, 300.0])
@pytest.mark.parametrize(
    "law",
    [
        dist.HalfCauchy(2.0),
        dist.FoldedDistribution(dist.StudentT(3.5, 0.0, 2.0)),
        dist.FoldedDistribution(dist.Cauchy(0.0, 2.0)),
    ],
    ids=["HalfCauchy", "HalfStudentT", "folded Cauchy"],
)
def test_rates_of_scales_integrate_out(law, y):
    found = log_joint(law, "scale-mixture", np.full(U.shape, y), np.exp(U), "y:rate") + U
    np.testing.assert_allclose(logsumexp(found) + np.log(STEP), law.log_prob(y), rtol=1e-7)


@pytest.mark.parametrize("choice", ["polya-gamma", "jaakkola-jordan"])
@pytest.mark.parametrize(
    ("law", "y", "n"),
    [
        (dist.Bernoulli(logits=1.3), 0, 1.0),
        (dist.Bernoulli(logits=-2.0), 1, 1.0),
        (dist.Binomial(3, logits=0.7), 2, 3.0),
        (dist.NegativeBinomialLogits(1.5, -0.4), 2, 3.5),
    ],
    ids=["Bernoulli 0", "Bernoulli 1", "Binomial", "NegativeBinomial"],
)
def test_polya_gamma_weights_integrate_out(law, y, n, choice):
    # The series cancels for large weights, where nothing is left of the density.
    u = np.linspace(-7.0, 2.3, 2001)
    found = log_joint(law, choice, np.full(u.shape, y), np.exp(u), "y:omega") + u
    found = logsumexp(found + log_polya_gamma(np.exp(u), n)) + np.log(u[1] - u[0])
    np.testing.assert_allclose(found, law.log_prob(jnp.asarray(y)), rtol=1e-7)


LOCS = np.array([-1.0, 0.5, 4.0])


def weights():
    return dist.Categorical(probs=jnp.asarray([0.2, 0.3, 0.5]))


def vectors():
    return dist.MultivariateNormal(
        LOCS[:, None] * np.ones(2), precision_matrix=np.eye(2) * LOCS[:, None, None] ** 2
    )


MIXTURES = {  # made when they are used, in double precision
    "normal": (lambda: dist.MixtureSameFamily(weights(), dist.Normal(LOCS, 0.7)), 0.3),
    "to_event": (
        lambda: dist.MixtureSameFamily(
            weights(), dist.Normal(LOCS[:, None], np.ones(2)).to_event(1)
        ),
        [0.3, 0.1],
    ),
    "matrix": (lambda: dist.MixtureSameFamily(weights(), vectors()), [0.3, 0.1]),
    "counts": (lambda: dist.MixtureSameFamily(weights(), dist.Poisson(np.exp(LOCS))), 2),
    "inverse gamma": (
        lambda: dist.MixtureSameFamily(weights(), dist.InverseGamma(2.0, LOCS**2)),
        0.4,
    ),
    "general": (
        lambda: dist.MixtureGeneral(
            weights(), [dist.Normal(m, s) for m, s in ((0, 1.0), (1, 2.0), (2, 1.0))]
        ),
        0.3,
    ),
}


@pytest.mark.parametrize("name", MIXTURES)
def test_indicators_sum_out(name):
    make, y = MIXTURES[name]
    try:
        law = make()
    except AssertionError as error:
        if "must have a support that does not depend" not in str(error):  # NumPyro 0.21
            raise
        pytest.skip("this NumPyro has no mixtures of independent vectors")
    y = np.broadcast_to(np.asarray(y), (3, *np.shape(y)))
    found = log_joint(law, "indicator", y, jnp.arange(3), "y:indicator")
    np.testing.assert_allclose(logsumexp(found), law.log_prob(y[0]), rtol=1e-10)


def test_components_that_depend_on_the_row():
    locs = np.arange(6.0).reshape(2, 3)
    law = dist.MixtureSameFamily(
        dist.Categorical(probs=jnp.asarray([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]])),
        dist.Normal(locs, 0.7),
    )
    y = np.array([0.3, 3.0])
    found = [log_joint(law, "indicator", y, jnp.full(2, k), "y:indicator") for k in range(3)]
    np.testing.assert_allclose(logsumexp(found, axis=0), law.log_prob(y), rtol=1e-12)


LOGITS = np.array([0.3, -1.0, 2.0])
SOFTMAX = {
    "categorical": (lambda: dist.Categorical(logits=LOGITS), 1),
    "multinomial": (lambda: dist.Multinomial(4, logits=LOGITS), [1, 0, 3]),
}


@pytest.mark.parametrize("name", SOFTMAX)
def test_softmax_rates_integrate_out(name):
    make, y = SOFTMAX[name]
    law = make()
    y = np.broadcast_to(np.asarray(y), (*U.shape, *np.shape(y)))
    found = log_joint(law, "poisson", y, np.exp(U), "y:rate") + U
    np.testing.assert_allclose(logsumexp(found) + np.log(STEP), law.log_prob(y[0]), rtol=1e-9)


@pytest.mark.parametrize("name", SOFTMAX)
def test_bouchard_is_a_bound_at_every_offset(name):
    make, y = SOFTMAX[name]
    law = make()
    n = 4 if name == "multinomial" else 1
    offsets = np.linspace(-3.0, 5.0, 801)
    y = np.broadcast_to(np.asarray(y), (801, *np.shape(y)))
    given = SoftmaxGivenWeights(law, offsets, np.zeros((801, 3)), validate_args=False)
    above = np.asarray(law.logits) - offsets[:, None]
    # E exp(-w b^2 / 2) = cosh(b / 2)^-n integrates the weights out.
    bound = np.asarray(given.log_prob(y)) - n * np.log(np.cosh(above / 2)).sum(-1)
    exact = float(law.log_prob(y[0]))
    by_hand = n * (offsets + np.logaddexp(above, 0).sum(-1) - logsumexp(law.logits))
    np.testing.assert_allclose(bound, exact - by_hand, rtol=1e-9)
    assert np.all(bound < exact)
    assert bound.max() > exact - 1.2 * n
    assert Offset().log_prob(jnp.zeros(3)).shape == (3,)


# --- The rewriting ---


def regression(x, y, mask=None):
    b = numpyro.sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with numpyro.plate("rows", len(y)), handlers.mask(mask=True if mask is None else mask):
        numpyro.sample("y", dist.StudentT(4.0, x @ b, 1.0), obs=y)


def test_the_rewritten_program_keeps_name_signature_plates_and_observations():
    program = augmented(regression, {"y": "scale-mixture"})
    assert program.__name__ == "regression"
    assert inspect.signature(program) == inspect.signature(regression)
    model = trace_model(program, (np.ones((5, 2)), np.arange(5.0)))
    assert [(s.name, s.kind, s.shape) for s in model.sites] == [
        ("b", "latent", (2,)),
        ("y:weight", "latent", (5,)),
        ("y", "observed", (5,)),
    ]
    assert model.local == ("y:weight",)
    assert [p.name for p in model.latent["y:weight"].plates] == ["rows"]
    assert model.latent["y:weight"].where == model.observed["y"].where
    assert model.observed["y"].where.startswith("test_augment.py:")


def test_event_dimensions_and_observations_that_widen_the_site():
    def program(y):
        numpyro.sample("z", dist.Laplace(0.0, 1.0).expand([3]).to_event(1))
        with numpyro.plate("rows", 4):
            numpyro.sample("y", dist.Cauchy(jnp.zeros(3), 1.0).to_event(1), obs=y)
        numpyro.sample("wide", dist.Bernoulli(logits=0.3), obs=jnp.arange(4) % 2)

    choices = {"z": "scale-mixture", "y": "scale-mixture", "wide": "polya-gamma"}
    model = trace_model(augmented(program, choices), (np.arange(12.0).reshape(4, 3),))
    shapes = {s.name: (s.batch_shape, s.event_shape) for s in model.sites}
    assert shapes == {
        "z:weight": ((), (3,)),
        "z": ((), (3,)),
        "y:weight": ((4,), (3,)),
        "y": ((4,), (3,)),
        "wide:omega": ((4,), ()),
        "wide": ((4,), ()),
    }


def test_masks_stay_on_the_site_and_weights_that_nothing_reads_have_their_prior():
    keep = np.array([True, False, True])
    model = trace_model(
        augmented(regression, {"y": "scale-mixture"}), (np.ones((3, 2)), np.arange(3.0), keep)
    )
    values = {"b": np.zeros(2), "y:weight": np.array([1.0, 2.0, 3.0])}
    density = model.run(values, model.arguments.data)
    assert float(density["y"].log_prob()[1]) == 0.0
    assert float(density["y"].log_prob()[2]) != 0.0
    prior = dist.Gamma(2.0, 2.0).log_prob(values["y:weight"])
    np.testing.assert_allclose(density["y:weight"].log_prob(), prior, rtol=1e-6)


def test_none_leaves_a_site_alone():
    model = trace_model(augmented(regression, {"y": "none"}), (np.ones((3, 2)), np.arange(3.0)))
    assert [s.name for s in model.sites] == ["b", "y"]


def test_draws_of_a_rewritten_site_are_those_of_its_own_law():
    # P(y = 1) = 0.7 at 20000 draws: 5 standard errors are 0.016, false failure 6e-7.
    logit = math.log(0.7 / 0.3)
    program = augmented(
        lambda: numpyro.sample("y", dist.Bernoulli(logits=logit).expand([20000])),
        {"y": "polya-gamma"},
    )
    y = handlers.seed(program, 1)()
    assert abs(float(jnp.mean(y)) - 0.7) < 0.017


def test_possible_lists_the_table():
    assert possible("StudentT") == ("scale-mixture",)
    assert possible("CategoricalLogits") == ("poisson", "bouchard")
    assert possible("Normal") == ()
    assert all(possible(kind) for kind in AUGMENTATIONS)


# --- Errors ---


def message(function, choices, *args):
    with pytest.raises(AugmentationError) as caught:
        trace_model(augmented(function, choices), args)
    line = str(caught.value)
    return line[: line.index("test_augment.py:")] + line[line.index(")") :] if "(" in line else line


def two_sites(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=mu), obs=y)


Y = np.array([0, 1, 1])


def test_unknown_site():
    assert message(two_sites, {"x": "polya-gamma"}, Y) == (
        "augment names the site 'x', which the model does not have.\nExpected names among mu, y."
    )


def test_augmentation_of_another_distribution():
    assert message(two_sites, {"mu": "polya-gamma"}, Y) == (
        "Site 'mu' is Normal   (); found augmentation 'polya-gamma', which is for "
        "BernoulliLogits, BinomialLogits, NegativeBinomialLogits.\n"
        "Expected a site of such a distribution. Leave 'mu' out of augment."
    )


def test_unknown_augmentation():
    assert message(two_sites, {"mu": "magic"}, Y) == (
        "Site 'mu' is Normal   (); found augmentation 'magic', which is none.\n"
        "Expected 'bouchard', 'indicator', 'poisson', 'polya-gamma', 'scale-mixture', "
        "'truncated-normal', 'none'."
    )


def test_wrong_augmentation_for_a_distribution_that_has_others():
    assert message(two_sites, {"y": "scale-mixture"}, Y) == (
        "Site 'y' is BernoulliLogits   (); found augmentation 'scale-mixture'.\n"
        "Expected 'polya-gamma', 'none' for BernoulliLogits."
    )


def test_latent_negative_binomial():
    def program():
        numpyro.sample("y", dist.NegativeBinomialLogits(2.0, 0.0))

    assert message(program, {"y": "polya-gamma"}) == (
        "Site 'y' is a latent NegativeBinomialLogits   ().\nExpected an observed site: its weight "
        "is PG(y + r, 0), which needs y. Give the site an observation, or leave it out of augment."
    )


def test_folded_law_that_is_not_half_a_student():
    def program():
        numpyro.sample("y", dist.FoldedDistribution(dist.StudentT(2.0, 1.0, 1.0)))

    assert message(program, {"y": "scale-mixture"}) == (
        "Site 'y' is a FoldedDistribution of StudentT   ().\n"
        "Expected a StudentT or Cauchy law that is folded at loc = 0."
    )


def test_mixture_of_several_families():
    def program():
        parts = [dist.Normal(0.0, 1.0), dist.Cauchy(0.0, 1.0), dist.Normal(0.0, 1.0)]
        numpyro.sample("y", dist.MixtureGeneral(weights(), parts))

    assert message(program, {"y": "indicator"}) == (
        "Site 'y' is a mixture of Normal, Cauchy, Normal   ().\nExpected components of one "
        "family, without masks: their parameters are indexed by the indicator."
    )
