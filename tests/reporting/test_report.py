"""A page about a fit: the verdict first, all there is to read, and nothing from elsewhere."""

import dataclasses
import functools
import html.parser
import re

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.errors import ArgumentError
from lowerbound.reporting import course
from lowerbound.reporting.remaking import reproduction, settings
from lowerbound.result.evidence import Evidence, Off


def mixture(x, K):
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(K)))
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0).expand([K, 2]).to_event(2))
    with numpyro.plate("data", len(x)):
        c = numpyro.sample("c", dist.Categorical(pi))
        numpyro.sample("x", dist.Normal(mu[c], 1.0).to_event(1), obs=x)


X = np.random.default_rng(0).normal(size=(60, 2)) + 8.0 * np.repeat([0, 1], 30)[:, None]


@pytest.fixture(scope="module")
def fit():
    return lb.fit(mixture, X, K=2, method=lb.CAVI(restarts=3))


@pytest.fixture(scope="module")
def page(fit, tmp_path_factory):
    off = (Off("mu", 0.4, -0.5, 0.01, 0.01), Off("pi", 0.0, 0.0, 0.01, 0.01))
    evidence = Evidence("weights", 512, 0.3, 0.8, 0.1, off)
    verdict = lb.Verdict(
        "nothing", "the mean of 'mu' is <off>", 'lb.correct(fit, "psis")', evidence
    )
    one = dataclasses.replace(fit, verdict=verdict)
    path = tmp_path_factory.mktemp("pages") / "new" / "report.html"
    assert lb.report(one, path, title="A <mixture>") == path
    return path.read_text("utf-8")


class Tags(html.parser.HTMLParser):
    """What a page opens and closes, and what it refers to."""

    def __init__(self):
        super().__init__()
        self.open, self.links, self.headings = [], [], []

    def handle_starttag(self, tag, attributes):
        self.links += [value for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "link", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("h1", "h2"):
            self.headings.append(data)


def test_the_page_stands_alone_and_is_well_formed(page):
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert all(link.startswith("data:") for link in tags.links)
    assert "http" not in page
    assert "<script" not in page
    assert tags.headings == [
        "A <mixture>",
        "Posterior",
        "Pictures",
        "Predictive check",
        "What was derived",
        "Settings",
        "Versions",
        "Code to reproduce",
    ]


def test_the_verdict_is_first_and_in_words(page, fit):
    card = page.index("<section class='verdict nothing'>")
    assert page.index("<h1>") < card < page.index("<h2>")
    assert "<p class=advice>Do not trust the fit</p>" in page
    assert "The mean of &#x27;mu&#x27; is &lt;off&gt;." in page
    assert "<code>lb.correct(fit, &quot;psis&quot;)</code>" in page
    assert f"<p>{course(fit)} ELBO {fit.elbo:,.2f} nats.</p>" in page


def test_pictures_have_words_beside_them(page):
    # Evidence, intervals, pairs, rows, starts, and the predictive check.
    assert page.count("data:image/png;base64,") == 6
    alts = re.findall(r"<img alt='([^']*)'", page)
    assert alts == re.findall(r"<figcaption>(.*?)</figcaption>", page)
    assert all(alts)


def test_wide_things_scroll_within_themselves(page):
    assert page.count("<div class=scroll tabindex=0><table>") == 1
    assert page.count("<div class=scroll tabindex=0><pre>") == 3  # evidence, plan, code
    for condition in ("prefers-color-scheme: dark", "max-width: 40rem", "print"):
        assert condition in page


def test_the_run_can_be_made_again(page, fit):
    assert "<td>lb.CAVI(restarts=3)</td>" in page
    for name, version in fit.versions.items():
        assert f"{name} {version}" in page
    code = reproduction(fit)
    names = {"x": X}
    exec(compile(code, "page", "exec"), names)
    assert names["fit"].elbo == fit.elbo
    assert "import jax.numpy as jnp" in code.splitlines()
    assert code.endswith("fit = lb.fit(mixture, x, K=2, method=lb.CAVI(restarts=3), seed=0)")
    assert "# x: float64 of shape 60 x 2" in code
    assert settings(fit)["data"] == "x: float64 of shape 60 x 2; K: 2"


def test_code_of_corrected_partial_and_loaded_fits(fit, tmp_path):
    method = "correct(CAVI(restarts=3), 'nuts')"
    call = dataclasses.replace(fit.call, method=method, value=None)
    corrected = dataclasses.replace(fit, call=call)
    assert reproduction(corrected).splitlines()[-2:] == [
        "fit = lb.fit(mixture, x, K=2, method=lb.CAVI(restarts=3))",
        'fit = lb.correct(fit, "nuts", seed=0)',
    ]
    bound = dataclasses.replace(
        fit,
        call=dataclasses.replace(fit.call, function=functools.partial(mixture, K=2), kwargs={}),
    )
    assert "def mixture(x, K):" in reproduction(bound)
    fit.save(tmp_path / "fit.lb")
    loaded = lb.load(tmp_path / "fit.lb", mixture)
    assert "which does not hold its data" in reproduction(loaded)
    page = lb.report(loaded, tmp_path / "loaded.html").read_text("utf-8")
    assert "Not drawn: The file of the fit holds no data to compare with." in page


def test_figures_and_tables_of_the_user_replace_ours(fit, tmp_path):
    import pandas as pd
    from matplotlib.figure import Figure

    page = lb.report(
        fit,
        tmp_path / "own.html",
        tables={"Mine": pd.DataFrame({"a": [1.0]}, index=["row"])},
        figures={"A blank": Figure()},
    ).read_text("utf-8")
    assert page.count("data:image/png;base64,") == 1
    assert "<h2>Mine</h2>" in page
    assert "<h2>Posterior</h2>" not in page
    with pytest.raises(ArgumentError, match=r"report got str.\nExpected a fit"):
        lb.report("fit", tmp_path / "x.html")


def test_tables_of_many_numbers_show_what_stands_out(fit, monkeypatch):
    from lowerbound.reporting import writing

    monkeypatch.setattr(writing, "ROWS", 3)
    (title,) = writing.posterior_tables(fit)
    assert title == "Posterior (3 of 6 numbers, those that stand out most)"
    monkeypatch.setattr(writing, "DRAWN", 2)
    ((title, frame),) = writing.posterior_tables(fit).items()
    assert list(frame.columns) == ["mean", "sd"]
    assert {label.partition("[")[0] for label in frame.index} == {"pi", "mu"}


def test_course_counts_the_restarts_that_agree(fit):
    close = sum(r.elbo > fit.elbo - 0.1 for r in fit.restarts)
    n = len(fit.history.elbo)
    assert course(fit) == (
        f"Converged after {n} sweeps; {close} of 3 restarts end within 0.1 nats of the best ELBO."
    )


# --- Stochastic fits ---

ROWS = np.random.default_rng(1).normal(size=(1200, 2)) + 8.0 * np.repeat([0, 1], 600)[:, None]


@pytest.mark.parametrize("short", [True, False])
def test_report_of_a_stochastic_fit(short, tmp_path):
    monitor = {"monitor": None} if short else {}
    method = lb.SVI(batch_size=100, steps=6 if short else 12, **monitor)
    fit = lb.fit(mixture, ROWS, K=2, method=method)
    page = lb.report(fit, tmp_path / "report.html").read_text("utf-8")
    rows = f"{fit.history.rows[-1]:,} rows."
    state = "Converged" if fit.converged else "Not converged"
    assert f"<p>{state} after {fit.restarts[0].sweeps} steps, {rows} ELBO {fit.elbo:,.2f}" in page
    assert ("(an estimate, standard error" in page) == short
    below = "" if short else "; below, the average log predictive of rows held out"
    assert f"<figcaption>The ELBO by rows seen{below}.</figcaption>" in page
    assert "Compare it with rows by lb.plot.predictive(fit, x)." in page
    assert "mu[1, 1]" in page


def test_a_report_says_why_an_average_over_draws_falls(fit):
    from lowerbound.reporting.illustrating import climb_caption

    call = dataclasses.replace(fit.call, method="Gaussian()")
    for elbo in ([-3.0, -2.0, -1.0], [-3.0, -1.0, -2.0]):
        history = dataclasses.replace(fit.history, elbo=np.array(elbo), step="step")
        one = dataclasses.replace(
            fit, call=call, answer=dataclasses.replace(fit.answer, history=history)
        )
        falls = "may fall where a stage with more of them begins" in climb_caption(one)
        assert falls == (elbo[-1] < elbo[-2])
