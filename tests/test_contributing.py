"""The skeletons of docs/contributing run as they stand: one file and one line add each."""

import math
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density
from scipy.special import gammaln, ive

import lowerbound as lb
from lowerbound.family import FAMILIES
from lowerbound.joint.rules.interpret import RULES
from lowerbound.joint.templates.table import TEMPLATES
from lowerbound.joint.terms.expression import OPERATIONS

PAGES = Path(__file__).parent.parent / "docs" / "contributing"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture(autouse=True)
def tables():
    """The tables as they were, afterwards."""
    before = [(table, dict(table)) for table in (FAMILIES, RULES, OPERATIONS, TEMPLATES)]
    yield
    for table, entries in before:
        table.clear()
        table.update(entries)


def words(line: str) -> list[str]:
    return re.split(r"\s\s+", line.strip())


def run(page: str) -> dict[str, Any]:
    """The names that the page defines; rows of plans that it shows are among those printed."""
    names: dict[str, Any] = {"__name__": page}
    blocks = BLOCK.findall((PAGES / f"{page}.md").read_text("utf-8"))
    for number, (language, text) in enumerate(blocks):
        if language == "python":
            exec(compile(text, f"{page}.md, block {number}", "exec"), names)
    plans = [value for value in names.values() if isinstance(value, type(names["plan"]))]
    printed = [words(line) for plan in plans for line in str(plan).splitlines()]
    (said,) = [text for language, text in blocks if language == ""]
    assert [line for line in said.splitlines() if words(line) not in printed] == []
    return names


def assert_posterior(fit: Any, model: Any, data: np.ndarray, site: str, *points: float) -> None:
    """log q(z) + log p(x) = log p(x, z): q is the posterior, by NumPyro's own log density."""
    with jax.enable_x64(True):
        for z in points:
            joint, _ = log_density(model, (jnp.asarray(data),), {}, {site: jnp.asarray(z)})
            found = fit.posterior[site].log_prob(jnp.asarray(z)) + fit.elbo
            np.testing.assert_allclose(found, joint, rtol=1e-9)


def test_the_family_of_the_page(tmp_path):
    names = run("family")
    fit, x = names["fit"], names["x"]
    concentration = abs(2.0 + 3.0 * np.exp(1j * x).sum())
    evidence = np.log(ive(0, concentration) / ive(0, 2.0)) + concentration - 2.0
    np.testing.assert_allclose(fit.elbo, evidence, rtol=1e-10)
    assert_posterior(fit, names["direction"], x, "z", -2.0, 0.1, 1.3)
    # Four standard errors of a mean of 4,000 draws at most.
    length = ive(1, concentration) / ive(0, concentration)
    drawn = np.cos(fit.sample(4000, seed=0)["z"]).mean()
    aim = length * (2.0 + 3.0 * np.exp(1j * x).sum()).real / concentration
    assert abs(drawn - aim) < 4 / math.sqrt(4000)
    # Files know it by its kind, while it is registered.
    fit.save(tmp_path / "angles.lb")
    again = lb.load(tmp_path / "angles.lb", names["direction"])
    assert again.elbo == fit.elbo
    family = names["VonMises"](())
    mean = family.mean({"cos": jnp.asarray(1.2), "sin": jnp.asarray(-0.7)})
    back = family.natural(mean)
    np.testing.assert_allclose([back["cos"], back["sin"]], [1.2, -0.7], rtol=1e-4)


def test_without_its_line_the_family_is_not_used():
    names = run("family")
    del FAMILIES["von_mises"]
    assert "Free" in str(lb.explain(names["direction"], names["x"]))


def test_the_rule_of_the_page():
    names = run("rule")
    fit, y = names["fit"], names["y"]
    # The integral of z^(2 shape - 1) exp(-rate z^2) is Gamma(shape) / (2 rate^shape).
    shape, rate = y.sum() + 0.5, 6.0 * len(y) + 0.5
    evidence = y.sum() * math.log(6.0) - gammaln(y + 1.0).sum() + 0.5 * math.log(2.0 / math.pi)
    evidence += gammaln(shape) - shape * math.log(rate) - math.log(2.0)
    np.testing.assert_allclose(fit.elbo, evidence, rtol=1e-10)
    assert_posterior(fit, names["counts"], y, "z", 0.3, 0.9, 2.5)


def test_an_operation_is_one_line():
    names = run("rule")
    data = np.array(0.7)
    fit = lb.fit(names["bent"], data, method=lb.CAVI())
    grid = np.linspace(-6.0, 6.0, 20_001)
    log_p = dist.Normal(0.0, 0.5).log_prob(grid) + dist.Normal(np.sinh(grid), 0.3).log_prob(0.7)
    evidence = np.log(np.trapezoid(np.exp(np.asarray(log_p, float)), grid))
    # The best Gaussian is below the evidence, and near it: the posterior is nearly one.
    assert evidence - 0.05 < fit.elbo < evidence
    del OPERATIONS["sinh"]
    assert "through sinh(w)" in str(lb.explain(names["bent"], data))


def test_a_wrong_rule_is_found_out():
    names = run("rule")
    RULES["reduce_prod"] = RULES["reduce_sum"]
    with pytest.raises(lb.errors.CertificateError):
        lb.fit(names["counts"], names["y"], method=lb.CAVI())


def test_the_density_of_the_page():
    names = run("density")
    fit, heights = names["fit"], names["heights"]
    shape, rate = 3.0 + len(heights), 2.0 + 0.5 * np.sum(heights**2)
    evidence = 3.0 * math.log(2.0) - gammaln(3.0) + gammaln(shape) - shape * math.log(rate)
    np.testing.assert_allclose(fit.elbo, evidence + np.log(heights).sum(), rtol=1e-10)
    assert_posterior(fit, names["waves"], heights, "precision", 0.4, 1.1, 3.0)


def test_a_wrong_density_is_found_out():
    names = run("density")
    template, wrong = names["Template"], names["add"]
    TEMPLATES["Rayleigh"] = template.named(lambda x, scale: wrong(names["rayleigh"](x, scale), 0.1))
    with pytest.raises(lb.errors.CertificateError):
        lb.fit(names["waves"], names["heights"], method=lb.CAVI())
