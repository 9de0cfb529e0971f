"""The text of a program: what it says, its priors, and its density."""

from __future__ import annotations

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density
from scipy import stats

import lowerbound as lb
from lowerbound.errors import PriorError
from tests.formulas.rows import made_rows

ROWS = made_rows()

WRITTEN = '''"""y ~ x + s(z, df=4) + (1 + x | g), family gaussian, link identity.

60 rows. Written by lowerbound VERSION: this text is what runs. Edit it.
Default priors are weak, and scaled to the data: a standard deviation of a column moves the
predictor by about 2.5 standard deviations of the response, sd(y) = 1.49. The intercept is
as wide, and wider where zero is far from the columns' means.
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist


def effects(name, groups, new, law):
    """Effects of groups; those that only new data have get draws of their own."""
    with numpyro.plate(f"groups of {name}", groups):
        known = numpyro.sample(name, law)
    if not new:
        return known
    with numpyro.plate(f"new groups of {name}", new):
        return jnp.concatenate([known, numpyro.sample(f"{name}_new", law)])


def model(x, z_line, z_bends, g, y=None, g_new=0):
    intercept = numpyro.sample("intercept", dist.Normal(0.507, 3.73))
    b_x = numpyro.sample("b_x", dist.Normal(0.0, 4.14))

    # s(z, df=4): a line, and 3 bends about it, of standard deviation sd_s_z over the rows.
    b_z_line = numpyro.sample("b_z_line", dist.Normal(0.0, 3.71))
    sd_s_z = numpyro.sample("sd_s_z", dist.HalfNormal(3.71))
    s_z = numpyro.sample("s_z", dist.Normal(0.0, sd_s_z).expand([3]).to_event(1))

    # (1 + x | g): 6 groups ('0', '1', '2', '3', '4', ...), effects of Intercept, x.
    sd_g = numpyro.sample("sd_g", dist.HalfNormal(jnp.array([3.71, 4.14])).to_event(1))
    cor_g = numpyro.sample("cor_g", dist.LKJCholesky(2, 2.0))
    r_g = effects(
        "r_g", 6, g_new, dist.MultivariateNormal(jnp.zeros(2), scale_tril=sd_g[:, None] * cor_g)
    )

    predictor = intercept + b_x * x + b_z_line * z_line + z_bends @ s_z + r_g[g, 0] + r_g[g, 1] * x
    sigma = numpyro.sample("sigma", dist.HalfNormal(3.71))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(predictor, sigma), obs=y)
'''


def test_the_whole_text() -> None:
    f = lb.formula("y ~ x + s(z, df=4) + (1 + x | g)", ROWS)
    assert f.source == WRITTEN.replace("VERSION", lb.__version__)


def density(f: lb.Formula, values: dict[str, float]) -> np.ndarray:
    """Log p of the response, one value a row, with the latent sites at given values."""

    def run() -> jax.Array:
        program = numpyro.handlers.substitute(f.model, data=values)
        trace = numpyro.handlers.trace(numpyro.handlers.seed(program, 0)).get_trace(*f.arguments)
        site = trace[f.design.outcome.argument]
        value = site["fn"].log_prob(site["value"])
        return value if site["scale"] is None else value * site["scale"]

    with jax.enable_x64(True):
        return np.asarray(jax.jit(run)())


def sites_of(f: lb.Formula) -> dict:
    """The sites of a run of the program, of which only the shapes are computed."""

    def run() -> dict:
        trace = numpyro.handlers.trace(numpyro.handlers.seed(f.model, 0)).get_trace(*f.arguments)
        return {n: {"value": s["value"]} for n, s in trace.items() if s["type"] == "sample"}

    return jax.eval_shape(run)


VALUES = {"intercept": 0.3, "b_x": -0.4}
ETA = 0.3 - 0.4 * ROWS.x.to_numpy()
CUTS = np.array([-0.5, 0.7])


def ordinal(eta: np.ndarray) -> np.ndarray:
    below = stats.logistic.cdf(np.r_[-np.inf, CUTS, np.inf][None] - eta[:, None])
    return np.log(np.diff(below, axis=1)[np.arange(len(eta)), ROWS.grade.cat.codes])


LAWS = {
    "gaussian": ("y", {"sigma": 1.5}, stats.norm.logpdf(ROWS.y, ETA, 1.5)),
    "student": ("y", {"sigma": 1.5, "nu": 4.0}, stats.t.logpdf(ROWS.y, 4.0, ETA, 1.5)),
    "bernoulli": ("hit", {}, stats.bernoulli.logpmf(ROWS.hit, 1 / (1 + np.exp(-ETA)))),
    "binomial": ("p(hits, n)", {}, stats.binom.logpmf(ROWS.hits, ROWS.n, 1 / (1 + np.exp(-ETA)))),
    "poisson": ("count", {}, stats.poisson.logpmf(ROWS["count"], np.exp(ETA))),
    "negative binomial": (
        "count",
        {"concentration": 2.0},
        stats.nbinom.logpmf(ROWS["count"], 2.0, 2.0 / (2.0 + np.exp(ETA))),
    ),
    "gamma": (
        "positive",
        {"shape": 3.0},
        stats.gamma.logpdf(ROWS.positive, 3.0, scale=np.exp(ETA) / 3.0),
    ),
    "ordinal": ("grade", {"cutpoints": CUTS}, ordinal(ETA - 0.3)),
}


@pytest.mark.parametrize("family", LAWS)
def test_the_density_is_that_of_the_family(family: str) -> None:
    response, extras, expected = LAWS[family]
    f = lb.formula(f"{response} ~ x", ROWS, family=family)
    np.testing.assert_allclose(density(f, VALUES | extras), expected, rtol=1e-9)


def test_a_row_of_weight_two_counts_twice_and_an_offset_adds() -> None:
    f = lb.formula("y | weights(w) ~ x + offset(z)", ROWS)
    found = density(f, VALUES | {"sigma": 1.0})
    np.testing.assert_allclose(found, ROWS.w * stats.norm.logpdf(ROWS.y, ETA + ROWS.z, 1.0))


def test_the_predictor_of_groups_is_that_written_by_hand() -> None:
    f = lb.formula("y ~ x:f + (1 + f | g) + (1 | g/h) + (0 + x || h)", ROWS)
    rng = np.random.default_rng(1)
    shapes = {n: site["value"].shape for n, site in sites_of(f).items()}
    values = {n: rng.normal(size=s) for n, s in shapes.items() if n.startswith(("r_", "b_", "int"))}
    values |= {"sigma": 1.0}
    levels = sorted({(g, h) for g, h in zip(ROWS.g, ROWS.h, strict=True)})
    pair = np.array([levels.index(one) for one in zip(ROWS.g, ROWS.h, strict=True)])
    f_code, rows = ROWS.f.map({"a": 0, "b": 1, "c": 2}).to_numpy(), np.arange(len(ROWS))
    dummies = np.eye(3)[f_code]
    eta = values["intercept"] + values["b_x_f"][f_code] * ROWS.x
    eta += values["r_g"][ROWS.g, 0] + (values["r_g"][ROWS.g, 1:] * dummies[:, 1:]).sum(axis=1)
    eta += values["r_g_2"][ROWS.g] + values["r_g_h"][pair] + values["r_h_x"][ROWS.h] * ROWS.x
    assert len(rows) == len(eta)
    expected = stats.norm.logpdf(ROWS.y, eta, 1.0)
    np.testing.assert_allclose(density(f, values), expected, rtol=1e-9)


def test_the_whole_density_is_that_of_a_program_written_by_hand() -> None:
    f = lb.formula("hit ~ x + (1 | g)", ROWS, family="bernoulli")

    def by_hand(x, g, hit):
        intercept = numpyro.sample("intercept", dist.Normal(0.0, 10.0))
        b_x = numpyro.sample("b_x", dist.Normal(0.0, 3.0))
        sd_g = numpyro.sample("sd_g", dist.HalfNormal(2.5))
        with numpyro.plate("groups of r_g", 6):
            r_g = numpyro.sample("r_g", dist.Normal(0.0, sd_g))
        with numpyro.plate("rows", len(x)):
            logits = intercept + b_x * x + r_g[g]
            numpyro.sample("hit", dist.Bernoulli(logits=logits), obs=hit)

    priors = {"intercept": dist.Normal(0.0, 10.0), "b_x": "Normal(0, scale=3)"}
    f = lb.formula("hit ~ x + (1 | g)", ROWS, family="bernoulli", priors=priors)
    values = {"intercept": 0.2, "b_x": 0.5, "sd_g": 0.7, "r_g": np.linspace(-1, 1, 6)}
    with jax.enable_x64(True):
        found, expected = (
            float(log_density(one, f.arguments, {}, values)[0]) for one in (f.model, by_hand)
        )
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_default_priors_follow_the_units_of_the_data(scale: float) -> None:
    table = ROWS.assign(y=ROWS.y * scale, x=ROWS.x * 10.0 + 2000.0)
    text = str(lb.formula("y ~ x", table))
    (width,) = [line for line in text.splitlines() if "b_x = " in line]
    slope = 2.5 * np.std(table.y) / np.std(table.x)
    assert f"dist.Normal(0.0, {float(f'{slope:.3g}')})" in width
    # The intercept is where x is zero: 2,000 away, where the slope may have led anywhere.
    wide = np.hypot(2.5 * np.std(table.y), slope * table.x.mean())
    assert f"{float(f'{wide:.3g}')}))" in text


def test_priors_are_for_a_site_or_a_kind_of_sites() -> None:
    given = {"b": "Normal(0, 9)", "b_x": "Laplace(0, 1)", "sd": dist.HalfCauchy(3.0), "cor": 1}
    text = str(lb.formula("y ~ x + f + (x | g)", ROWS, priors=given))
    for line in (
        'numpyro.sample("b_x", dist.Laplace(0, 1))',
        'numpyro.sample("b_f", dist.Normal(0, 9).expand([2]).to_event(1))',
        'numpyro.sample("sd_g", dist.HalfCauchy(scale=3.0).expand([2]).to_event(1))',
        'numpyro.sample("cor_g", dist.LKJCholesky(2, 1.0))',
    ):
        assert line in text


ONE = (
    "Expected a NumPyro distribution of one number, as a value or as its text: "
    "dist.Normal(0.0, 10.0) or 'Normal(0, 10)'."
)


@pytest.mark.parametrize(
    ("priors", "said"),
    [
        (
            {"b_z": "Normal(0, 1)"},
            "priors has 'b_z', which is nothing in the formula.\nExpected a site, intercept, b_x, "
            "sd_g, cor_g, sigma, or a kind of site, 'b', 'cor', 'intercept', 'sd', 'sigma'.",
        ),
        ({"b": "Normal(0, "}, f"priors has 'b': 'Normal(0, ', which is no expression.\n{ONE}"),
        ({"b": "7"}, f"priors has 'b': '7', which is no distribution.\n{ONE}"),
        (
            {"b": "__import__('os')"},
            f"priors has 'b': \"__import__('os')\", which is no distribution with numbers.\n{ONE}",
        ),
        (
            {"b": "Normal(0, x)"},
            f"priors has 'b': 'Normal(0, x)', which is no distribution with numbers.\n{ONE}",
        ),
        ({"b": 3.0}, f"priors has 'b': 3.0, a float.\n{ONE}"),
        (
            {"b": "Dirichlet(1)"},
            None,
        ),
        (
            {"cor": "LKJ(2)"},
            "priors has 'cor': 'LKJ(2)'.\nExpected the concentration of LKJCholesky, a positive "
            "number: 1 for all correlations alike, more for small ones.",
        ),
    ],
)
def test_a_prior_that_means_nothing_is_refused(priors: dict, said: str | None) -> None:
    with pytest.raises(PriorError) as caught:
        lb.formula("y ~ x + (x | g)", ROWS, priors=priors)
    assert said is None or str(caught.value) == said


def test_names_are_valid_and_differ() -> None:
    table = ROWS.rename(columns={"x": "my x", "z": "seed"})
    f = lb.formula("y ~ `my x` + seed + np.log(n) + (1 | g)", table)
    assert list(f.data()) == ["my_x", "seed_2", "np_log_n", "g", "y"]
    assert list(f.labels) == ["intercept", "b_my_x", "b_seed_2", "b_np_log_n"]


def test_responses_without_columns() -> None:
    f = lb.formula("y ~ 1", ROWS)
    assert "def model(rows, y=None):" in str(f)
    assert f.data()["rows"] == 60
    np.testing.assert_allclose(
        density(f, {"intercept": 0.3, "sigma": 2.0}), stats.norm.logpdf(ROWS.y, 0.3, 2.0)
    )
