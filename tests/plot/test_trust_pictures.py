"""Pictures of how good a fit is: starts, rows, replicated data, weights and evidence."""

import dataclasses

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.errors import ArgumentError
from lowerbound.plot.replicated import Replicated, replicated
from lowerbound.result.evidence import Evidence, Off
from lowerbound.result.posterior import History, Restart

RNG = np.random.default_rng(0)
LABELS = np.repeat([0, 1, 2], 20)
X = RNG.normal(size=(60, 2)) + 6.0 * LABELS[:, None]


def mixture(x, K):
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(K)))
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0).expand([K, 2]).to_event(2))
    with numpyro.plate("data", len(x)):
        c = numpyro.sample("c", dist.Categorical(pi))
        numpyro.sample("x", dist.Normal(mu[c], 1.0).to_event(1), obs=x)


@pytest.fixture(scope="module")
def fit():
    return lb.fit(mixture, X, K=3, method=lb.CAVI(restarts=5), seed=1)


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def caption(axes):
    ax = np.atleast_1d(np.asarray(axes, object)).ravel()[0]
    return ax.get_figure(root=True).get_suptitle()


# --- Starts ---


def test_every_start_keeps_its_curve(fit, tmp_path):
    starts = fit.history.starts
    assert starts.shape[1] == 5
    for column, one in zip(starts.T, fit.restarts, strict=True):
        kept = column[np.isfinite(column)]
        assert len(kept) == one.sweeps
        assert kept[-1] == pytest.approx(one.elbo)
    best = int(np.argmax([one.elbo for one in fit.restarts]))
    np.testing.assert_array_equal(starts[: fit.restarts[best].sweeps, best], fit.history.elbo)
    fit.save(tmp_path / "fit.lb")
    loaded = lb.load(tmp_path / "fit.lb", mixture)
    np.testing.assert_array_equal(loaded.history.starts, starts)


def test_starts_are_drawn_by_the_optimum_they_found(fit):
    ax = lb.plot.restarts(fit)
    curves = [line for line in ax.lines if line.get_marker() in (None, "None", "")]
    assert len(curves) == 5
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts[0].startswith(f"{fit.elbo:,.2f}: ")
    assert sum(int(text.split(": ")[1].split()[0]) for text in texts) == 5
    ends = [line for line in ax.lines if (line.get_gid() or "").startswith("end")]
    assert sorted(float(line.get_ydata()[0]) for line in ends) == pytest.approx(
        sorted(one.elbo for one in fit.restarts)
    )
    other = plt.figure().subplots()
    assert lb.plot.restarts(fit, ax=other) is other
    assert other.figure.get_suptitle() == ""


def test_starts_without_curves_are_dots_and_failed_ones_are_counted(fit):
    record = (Restart(-3.0, 4, "converged"), Restart(-9.0, 2, "converged"),
              Restart(np.nan, 1, "stopped"))  # fmt: skip
    history = History(np.array([-8.0, -4.0, -3.1, -3.0]), np.arange(4.0))
    answer = dataclasses.replace(fit.answer, history=history, restarts=record)
    ax = lb.plot.restarts(dataclasses.replace(fit, answer=answer))
    assert len(ax.lines) == 3  # one curve, two ends
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "-3.00: 1 start",
        "6.00 below: 1 start",
    ]
    assert "1 starts have no finite ELBO." in caption(ax)


# --- Rows ---


def test_responsibilities_are_those_of_q(fit):
    left, right = lb.plot.responsibilities(fit)
    image = np.asarray(left.get_images()[0].get_array())
    assert image.shape == (3, 60)
    np.testing.assert_allclose(image.sum(axis=0), 1.0)
    sizes = sorted((bar.get_width() for bar in right.patches), reverse=True)
    np.testing.assert_allclose(sizes, sorted(fit.posterior["c"].probs.mean(axis=0))[::-1])
    assert "of the rows are sure" in caption(left)
    likeliest = image.argmax(axis=0)
    assert (np.diff(likeliest) >= 0).all()
    kept, _ = lb.plot.responsibilities(fit, ordered=True)
    order = np.argsort(-fit.posterior["c"].probs.mean(axis=0), kind="stable")
    np.testing.assert_allclose(
        np.asarray(kept.get_images()[0].get_array()), fit.posterior["c"].probs[:, order].T
    )


def test_responsibilities_of_new_rows(fit):
    left, _ = lb.plot.responsibilities(fit, X[:10])
    assert left.get_xlabel() == "10 rows, by their likeliest component"
    with pytest.raises(ArgumentError) as found:
        lb.plot.responsibilities(fit, site="mu")
    assert str(found.value) == (
        "plot.responsibilities got the site 'mu', which is no site of the rows.\n"
        "Expected names among c."
    )


# --- Replicated data ---


def test_data_of_the_model_are_inside_their_intervals(fit):
    found = replicated(fit)
    assert [one.name for one in found] == ["x[:, 0]", "x[:, 1]"]
    for one in found:
        assert one.drawn.shape == (200, 60)
        # 54 of 60 are expected: fewer than 46 with a rate of 1e-4.
        assert one.inside(0.9) > 46 / 60
    np.testing.assert_array_equal(found[1].data, X[:, 1])


@pytest.mark.parametrize(
    ("data", "law"),
    [
        (RNG.normal(size=10), lambda rng, n: rng.normal(size=n)),
        (RNG.poisson(3.0, 200), lambda rng, n: rng.poisson(3.0, n)),
        (RNG.poisson(200.0, 300), lambda rng, n: rng.poisson(200.0, n)),
        (RNG.normal(size=300), lambda rng, n: rng.normal(size=n)),
    ],
    ids=["one by one", "few values", "many counts", "continuous"],
)
def test_each_kind_of_data_has_its_picture(data, law):
    from lowerbound.plot.replicated import _panel

    drawn = np.stack([law(np.random.default_rng(seed), len(data)) for seed in range(50)])
    one = Replicated("y", np.asarray(data, float), drawn.astype(float))
    ax = plt.figure().subplots()
    marks = _panel(ax, one)
    assert list(marks) == ["the data", "replicated: median and 90%"]
    ax.figure.canvas.draw()


def test_a_misfit_is_named():
    data = np.append(np.zeros(99), 50.0)
    drawn = np.random.default_rng(0).normal(size=(200, 100))
    said = str(Replicated("y", data, drawn))
    assert said.startswith("99% of the data are in their 90% intervals; for the model, their ")
    assert "sd too large" in said
    assert "largest too large" in said
    assert "smallest too large" in said  # zeros have no tail


def test_missing_entries_are_left_out():
    def model(y):
        m = numpyro.sample("m", dist.Normal(0.0, 10.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(m, 1.0), obs=y)

    y = np.ma.masked_invalid([1.0, np.nan, 2.0, 1.5])
    (one,) = replicated(lb.fit(model, y))
    np.testing.assert_array_equal(one.data, [1.0, 2.0, 1.5])


def test_predictive_checks_that_cannot_be(fit, tmp_path):
    fit.save(tmp_path / "fit.lb")
    with pytest.raises(ArgumentError) as found:
        lb.plot.predictive(lb.load(tmp_path / "fit.lb", mixture))
    assert str(found.value) == (
        "The file of the fit holds no data to compare with.\n"
        "Expected data: pass them here, or to lb.load(path, model, ...)."
    )
    with pytest.raises(ArgumentError) as found:
        lb.plot.predictive(fit, sites=["mu"])
    assert str(found.value) == (
        "plot.predictive got the site 'mu', which is not observed.\nExpected names among x."
    )
    short = dataclasses.replace(fit, answer=dataclasses.replace(fit.answer, rows=((X,), {"K": 3})))
    with pytest.raises(ArgumentError) as found:
        lb.plot.predictive(short)
    assert str(found.value) == (
        "The fit holds global factors alone, so it cannot replicate the rows it was made from.\n"
        "Expected rows to compare with: lb.plot.predictive(fit, x_new)."
    )


# --- Weights ---


def test_weights_of_a_fit_and_of_rows_left_out(fit):
    (ax,) = lb.plot.k_hat(fit, draws=200)
    (weights,) = (line for line in ax.lines if line.get_gid() == "weights")
    assert weights.get_ydata().sum() == pytest.approx(1.0)
    assert (np.diff(weights.get_ydata()) <= 0).all()
    assert ax.get_title(loc="left").startswith("k-hat ")
    found = lb.Comparison(
        "loo", (), k_hats={"a": np.array([0.1, 0.2, 0.9]), "b": np.array([np.inf, 0.0, 0.3])}
    )
    axes = lb.plot.k_hat(found)
    assert [one.get_title(loc="left") for one in axes] == [
        "a: 1 of 3 rows above 0.7",
        "b: 1 of 3 rows above 0.7",
    ]
    with pytest.raises(ArgumentError) as raised:
        lb.plot.k_hat(lb.Comparison("elbo", ()))
    assert str(raised.value) == (
        'plot.k_hat got a comparison by "elbo", which has no k-hats.\n'
        'Expected lb.compare(fits, by="loo"), or a fit.'
    )


# --- Evidence ---


def test_evidence_is_drawn_worst_first():
    off = tuple(Off(f"s{i}", 0.01 * i, -0.02 * i, 0.01, 0.01) for i in range(50))
    verdict = lb.Verdict("means", "q is narrow", "", Evidence("chains", 512, 0.5, 0.4, 0.1, off))
    means, sds = lb.plot.evidence(verdict)
    labels = [text.get_text() for text in means.get_yticklabels()]
    assert labels[:2] == ["s49", "s48"]
    assert len(labels) == 30
    assert "The worst of 50 sites." in caption(means)
    assert "By short chains from q, 512 draws, k-hat 0.50." in caption(means)
    assert {float(text.get_text()) for text in sds.get_xticklabels()} >= {0.5, 1.0, 2.0}


def test_k_hats_of_sites_are_drawn_where_they_are_known():
    off = (Off("a", 0.3, 0.0, 0.01, 0.01, 0.9, 20.0), Off("b", 0.0, 0.0, 0.01, 0.01, 0.2, 900.0))
    found = lb.Verdict("means", "so", "", Evidence("weights", 1000, 0.9, 0.4, 0.1, off))
    *_, k_hats = lb.plot.evidence(found)
    assert k_hats.get_xlabel() == "k-hat"
    assert [list(line.get_xdata()) for line in k_hats.lines] == [[0.2], [0.9]]


def test_a_verdict_without_measurements_has_no_evidence():
    with pytest.raises(ArgumentError) as found:
        lb.plot.evidence(lb.Verdict("means", "nothing was measured"))
    assert str(found.value) == (
        "plot.evidence got a verdict without measurements: nothing was measured.\n"
        "Expected one that draws were made for: lb.plot.evidence(lb.check(fit))."
    )
