"""Every way to fit does what the table says: its plan, its numbers, its draws, its files.

Stochastic checks allow 5 standard errors for each number, at fixed seeds. Over the table these are
some 10,000 numbers, most of them dependent, each wrong with probability 6e-7 if normal: by other
seeds the whole file fails in fewer than 1 of 100 runs.
"""

import dataclasses
import math
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest

import lowerbound as lb
from lowerbound.errors import ArgumentError, LowerboundError
from lowerbound.trust.judging import judged
from tests.methods.fitted import DRAWS, SEED, Calls, drawn, explained, fitted, predicted, run
from tests.methods.table import WAYS, over

SEEDS = (0, 1)
ERRORS = 5.0
ROUND = 1e-9


def close(found, expected, error, what, floor=0.0):
    """Within five standard errors, element by element; `floor` is for errors that are not noise."""
    found, expected = np.asarray(found, float), np.asarray(expected, float)
    assert found.shape == expected.shape, what
    allowed = ERRORS * np.asarray(error) + floor
    worst = np.max(np.abs(found - expected) - allowed, initial=-math.inf)
    assert worst <= 0, f"{what}: off by {worst:.3g} more than {ERRORS:g} standard errors"


def refused(way, capability, call):
    """Whether the table says that a way refuses: then the call must, in these words."""
    if capability not in way.refuses:
        return False
    with pytest.raises((LowerboundError, KeyError)) as caught:
        call()
    assert way.refuses[capability] in str(caught.value)
    return True


# --- Trust ---


@over("verdict")
def test_a_verdict_rests_on_something(way):
    fit = fitted(way).fit
    verdict = judged(fit, took=60.0)
    if "verdict" in way.refuses:
        assert way.refuses["verdict"] in verdict.reason
        assert verdict.trust != "all"
        return
    evidence = verdict.evidence
    assert fit.answer.exact == (evidence is None)
    if evidence is not None:
        assert {one.site for one in evidence.off} <= set(fit.sites)
        some_rows = not fit.whole  # whose bound is not that of all
        assert some_rows or evidence.gap > -5 * max(fit.elbo_error, 0.05)  # no looser a bound


# --- Plan ---


@over("plan")
def test_the_plan_is_what_explain_returned(way):
    found, expected = fitted(way).fit.plan, fitted(way).plan
    for part in (f.name for f in dataclasses.fields(lb.Plan) if f.compare):
        assert getattr(found, part) == getattr(expected, part), part
    assert str(found) == str(expected)
    assert [row.site for row in found.rows if ":" not in row.site] == [*way.example.shapes]


@over("rung")
def test_the_method_is_the_one_asked_for(way):
    fit = fitted(way).fit
    taken = [line for line in fit.plan.ladder if line.startswith("->")]
    if way.automatic:
        assert [line[3:].split(":")[0] for line in taken] == [way.rung][: bool(way.rung)]
    else:
        assert fit.method == repr(way.method)
        assert not taken
    assert fit.seed == SEED


@over("rung")
def test_the_automatic_fit_is_that_of_its_method(way):
    """The method that a fit names, evaluated, gives the same fit."""
    if not way.automatic:
        pytest.skip("the method was given")
    first = fitted(way).fit
    fit = run(replace(way, method=eval(first.method, vars(lb))))
    fit = replace(fit, plan=replace(fit.plan, ladder=first.plan.ladder))
    assert_same(fit, first)


# --- Numbers ---


def assert_same(found, expected):
    """Everything that a user can read of two fits is equal, bit for bit, but the seconds."""
    for name in ("elbo", "elbo_error", "converged", "stop_reason", "method", "seed", "precision"):
        assert getattr(found, name) == getattr(expected, name), name
    assert found.restarts == expected.restarts
    assert found.plan == expected.plan
    np.testing.assert_array_equal(found.history.elbo, expected.history.elbo)
    np.testing.assert_array_equal(found.history.held_out, expected.history.held_out)
    assert found.elbo_terms == expected.elbo_terms
    assert repr(found) == repr(expected)
    for site in expected.posterior:
        np.testing.assert_array_equal(found.mean(site), expected.mean(site))
        np.testing.assert_array_equal(found.sd(site), expected.sd(site))


@over("repeats")
def test_the_same_seed_gives_the_same_numbers(way):
    assert_same(fitted(way).again, fitted(way).fit)


@over("compiles once")
def test_another_call_compiles_nothing(way):
    assert not fitted(way).compilations


@over("history")
def test_the_history_ends_at_the_elbo(way):
    fit = fitted(way).fit
    elbo = fit.history.elbo
    assert isinstance(fit.elbo, float)
    assert math.isfinite(fit.elbo)
    assert math.isfinite(fit.elbo_error)
    assert fit.elbo_error >= 0
    assert len(elbo) == len(fit.history.seconds) > 0
    assert np.isfinite(elbo).all()
    assert (np.diff(fit.history.seconds) >= 0).all()
    if way.history == "exact":
        assert fit.elbo_error == 0
        assert elbo[-1] == pytest.approx(fit.elbo, rel=ROUND)
    if way.history == "estimates":  # by other draws than those of the ELBO, and no fewer
        assert fit.elbo_error > 0
        close(elbo[-1], fit.elbo, math.sqrt(2) * fit.elbo_error, "history", 1e-3)
    if way.history == "noisy":  # by few rows, around the ELBO of all
        late = elbo[len(elbo) // 2 :]
        close(late.mean(), fit.elbo, late.std() / math.sqrt(len(late)), "history")


@over("restarts")
def test_the_table_of_restarts_has_the_one_that_was_kept(way):
    fit = fitted(way).fit
    assert fit.restarts
    best = max(one.elbo for one in fit.restarts)
    assert best == pytest.approx(fit.elbo, rel=ROUND, abs=ERRORS * fit.elbo_error)
    assert all(one.sweeps > 0 and one.reason for one in fit.restarts)


@over("reason")
def test_the_stop_reason(way):
    fit = fitted(way).fit
    kinds = ("converged: ", "stopped: ")
    for reason in (fit.stop_reason, *(one.reason for one in fit.restarts)):
        assert reason.startswith(kinds)
        assert reason not in kinds
    assert fit.stop_reason.startswith("converged: ") == bool(fit.converged)
    assert fit.stop_reason in [one.reason for one in fit.restarts]


@over("flag")
def test_converged_is_a_bool(way):
    assert type(fitted(way).fit.converged) is bool


# --- The posterior ---


def moments_error(draws):
    """Standard errors of the mean and of the variance of draws, from their fourth moments."""
    centred = draws - draws.mean(axis=0)
    return draws.std(axis=0) / math.sqrt(len(draws)), (centred**2).std(axis=0) / math.sqrt(
        len(draws)
    )


def check_moments(draws, mean, sd, values, what):
    """Draws of one site have a mean and a variance; those of finitely many values, their shares."""
    assert draws.shape == (len(draws), *mean.shape)
    count = len(draws)
    if values:  # of few draws with a rare value, an estimated error says nothing
        close(draws.mean(axis=0), mean, sd / math.sqrt(count), what, 1e-3 + 3 / count)
        return
    of_mean, of_variance = moments_error(draws)
    close(draws.mean(axis=0), mean, of_mean, f"mean of {what}", ROUND)
    close(draws.var(axis=0), sd**2, of_variance, f"variance of {what}", ROUND)


@over("draws")
def test_draws_have_the_moments(way):
    fit, example = fitted(way).fit, way.example
    assert {s for s in fit.posterior if ":" not in s} == {*way.sites}
    for seed in SEEDS:
        draws = drawn(way, seed)
        for site, shape in way.sites.items():
            mean, sd = fit.mean(site), fit.sd(site)
            assert np.shape(mean) == np.shape(sd) == shape
            discrete = fit.posterior[site].is_discrete
            check_moments(draws[site], mean, sd, discrete, f"{site}, seed {seed}")
        for site, of in example.derived.items():
            if all(name in way.sites for name in example.shapes if name in of.__code__.co_consts):
                np.testing.assert_allclose(draws[site], of(draws), rtol=1e-6, atol=1e-9)
    for site in way.sites:
        assert not np.array_equal(*(drawn(way, seed)[site] for seed in SEEDS))


@over("marginals")
def test_marginals_have_the_moments(way):
    fit = fitted(way).fit
    for site in way.sites:
        law, mean, sd = fit.posterior[site], fit.mean(site), fit.sd(site)
        assert (*law.batch_shape, *law.event_shape) == mean.shape
        with jax.enable_x64(True):
            draw = jax.jit(lambda key, law=law: law.sample(key, (DRAWS,)))  # one compilation
            draws = np.asarray(draw(jax.random.key(7)))
        check_moments(draws, mean, sd, law.is_discrete, site)
    with pytest.raises(KeyError, match="nowhere"):
        fit.posterior["nowhere"]
    with pytest.raises(ArgumentError, match="nowhere"):
        fit.mean("nowhere")


@over("draws")
def test_the_summary_is_of_the_same_moments(way):
    fit = fitted(way).fit
    table = fit.summary([*way.sites])
    assert [*table.columns] == ["mean", "sd", "q5", "median", "q95"]
    for site, shape in way.sites.items():
        labels = [f"{site}[{', '.join(map(str, i))}]" if i else site for i in np.ndindex(shape)]
        own = table.loc[labels]
        np.testing.assert_allclose(own["mean"], fit.mean(site).ravel(), rtol=ROUND)
        np.testing.assert_allclose(own["sd"], fit.sd(site).ravel(), rtol=ROUND)
        draws = drawn(way, 1)[site].reshape(DRAWS, -1)
        if fit.posterior[site].is_discrete:
            continue
        for column, level in (("q5", 0.05), ("median", 0.5), ("q95", 0.95)):
            below = (draws < own[column].to_numpy()).mean(axis=0)
            # The quantile is one of 1000 draws itself.
            error = math.sqrt(level * (1 - level) * (1 / DRAWS + 1 / 1000))
            close(below, np.full_like(below, level), error, f"{column} of {site}", 1e-3)
    assert len(table) == sum(math.prod(shape) for shape in way.sites.values())


# --- The bound ---

COARSE = 0.1  # nats that draws may lose to a grid: their z belongs to a node beside their theta


@over("log q")
def test_the_density_of_draws_gives_the_elbo(way):
    """E_q[log p - log q] is the ELBO: with log q of draws, whose average is minus the entropy.

    log p - log q varies less than either, so that no other test sees as much of q at once. Draws
    are independent, and their errors normal: each of some 20 ways is wrong with probability 6e-7.
    """
    fit = fitted(way).fit
    if way.by_rows:
        pytest.skip("q is of the global sites, and the ELBO of all")
    draws = fit.q.sample(DRAWS, jax.random.key(11))
    log_q = fit.q.log_prob(draws)
    assert log_q.shape == (DRAWS,)
    with jax.enable_x64(True):
        model = fit.model()
        data = {name: jnp.asarray(array) for name, array in model.arguments.data.items()}
        log_p = jax.jit(jax.vmap(lambda values: model.log_density(values, data)))(draws)
    ratios = np.asarray(log_p) - log_q
    error = math.hypot(ratios.std() / math.sqrt(DRAWS), fit.elbo_error)
    close(ratios.mean(), fit.elbo, error, "E_q[log p - log q]", COARSE if way.on_grid else 1e-6)
    assert ratios.mean() <= fit.elbo + ERRORS * error + 1e-3


@over("terms")
def test_the_terms_sum_to_the_elbo(way):
    fit = fitted(way).fit
    terms = fit.elbo_terms
    assert sum(terms.values()) == pytest.approx(fit.elbo, rel=ROUND, abs=3 * fit.elbo_error)
    assert {name for name in terms if ":" not in name} >= {*way.sites, "y"}


@over("terms")
def test_the_term_of_the_data_is_their_expected_density(way):
    fit, example = fitted(way).fit, way.example
    if way.by_rows or any(":" in name for name in fit.elbo_terms):
        pytest.skip("the draws are of the shared sites, or the term is of another program")
    draws = drawn(way, 1)
    program = numpyro.handlers.substitute(example.model, data=dict(fit.parameters))
    with jax.enable_x64(True), numpyro.validation_enabled(False):
        latent = {name: draws[name] for name in way.sites}
        densities = partial(
            numpyro.infer.util.log_likelihood, program, parallel=True, **example.call
        )
        each = jax.jit(densities)(latent)  # one compilation
    density = np.asarray(each["y"]).reshape(DRAWS, -1).sum(axis=1)
    # The term may itself be an average over as many draws.
    error = math.sqrt(2) * density.std() / math.sqrt(DRAWS)
    close(fit.elbo_terms["y"], density.mean(), error, "the term of y", ROUND)


# --- New rows ---


@over("predicts")
def test_predictive_draws(way):
    fit, new = fitted(way).fit, way.example.at
    if refused(way, "predicts", lambda: fit.predictive(**new, draws=4)):
        return
    draws = predicted(way)
    assert draws.shape == (100, *new.get("y", way.example.data["y"]).shape)
    assert np.isfinite(draws).all()
    assert not np.array_equal(draws[0], draws[1])


@over("densities")
def test_predictive_densities_sum_to_one(way):
    """And their mean is that of predictive draws: the two see one law."""
    fit, example = fitted(way).fit, way.example
    if refused(way, "densities", lambda: fit.log_predictive(**example.at)):
        return
    # Where rows draw latent sites of their own, masses are estimates, one for each seed.
    seeds = range(8) if example.drawn else range(1)
    draws = 500 // len(seeds)
    each = [np.exp(fit.log_predictive(**example.at, draws=draws, seed=seed)) for seed in seeds]
    assert {densities.shape for densities in each} == {example.outcomes.shape}
    masses = np.array([densities.sum() for densities in each]) * example.width
    error = masses.std(ddof=1) / math.sqrt(len(each)) if example.drawn else 0.0
    assert error < 0.01
    close(masses.mean(), 1.0, error, "mass", 1e-3)
    mean = (np.mean(each, axis=0) * example.width * example.outcomes).sum()
    draws = predicted(way)
    # The rows are alike, but share the draws of the shared sites.
    each = draws.mean(axis=1)
    error = each.std() / math.sqrt(len(each))
    shared = math.sqrt(1 + len(each) / 500) * error
    close(each.mean(), mean, shared, "mean of new rows", 0.05 * draws.std())


@over("local")
def test_local_factors_of_new_rows(way):
    fit, example = fitted(way).fit, way.example
    if refused(way, "local", lambda: fit.local(**example.at)):
        return
    new = fit.local(**example.at)
    assert [*new] == [*example.local]
    for site in example.local:
        law = new[site]
        shape = (*law.batch_shape, *law.event_shape)
        assert shape == (len(example.outcomes), *example.shapes[site][1:])
    if way.by_rows:
        return
    old = fit.local(**example.data)
    for site in example.local:
        law, sd = old[site], np.max(fit.sd(site))
        mean = law.probs[..., 1] if law.is_discrete else law.mean
        np.testing.assert_allclose(mean, fit.mean(site), atol=0.05 * sd)


# --- Interchange and files ---


@over("arviz")
def test_to_arviz(way):
    fit = fitted(way).fit
    data, draws = fit.to_arviz(DRAWS, seed=1, groups=["posterior"]), drawn(way, 1)
    posterior = data["posterior"]
    assert {*posterior.data_vars} == {*draws}
    for site, array in draws.items():
        np.testing.assert_array_equal(posterior[site].values, array[None])


@over("saves")
def test_a_saved_fit_is_the_same(way, tmp_path):
    fit, example = fitted(way).fit, way.example
    fit.save(tmp_path / "fit.lb")
    data = fit.call.kwargs if example.streamed else example.call  # some rows, for the rest
    loaded = lb.load(tmp_path / "fit.lb", example.model, **data)
    assert_same(loaded, fit)
    draws, others = loaded.sample(DRAWS, seed=1), drawn(way, 1)
    assert draws.keys() == others.keys()
    for site in others:
        np.testing.assert_array_equal(draws[site], others[site])


def test_a_stream_is_as_good_as_no_data(tmp_path):
    way = next(way for way in WAYS if way.example.streamed)
    fitted(way).fit.save(tmp_path / "fit.lb")
    loaded = lb.load(tmp_path / "fit.lb", way.example.model, **way.example.call)
    assert not loaded.has_data
    assert_same(loaded, fitted(way).fit)


@over("saves alone")
def test_a_file_needs_no_data(way, tmp_path):
    fit, example = fitted(way).fit, way.example
    fit.save(tmp_path / "fit.lb")

    def factors():
        alone = lb.load(tmp_path / "fit.lb", example.model)
        return [alone.posterior[site] for site in way.sites]

    if refused(way, "saves alone", factors):
        return
    alone = lb.load(tmp_path / "fit.lb", example.model)
    assert repr(alone) == repr(fit)
    assert (alone.elbo, alone.elbo_error) == (fit.elbo, fit.elbo_error)
    assert alone.elbo_terms == fit.elbo_terms
    draws, others = alone.sample(DRAWS, seed=1), drawn(way, 1)
    for site in way.sites:
        np.testing.assert_array_equal(alone.mean(site), fit.mean(site))
        np.testing.assert_array_equal(alone.sd(site), fit.sd(site))
        np.testing.assert_array_equal(draws[site], others[site])
    for site in example.derived:
        with pytest.raises(ArgumentError, match="need the data of the fit"):
            alone.mean(site)


@over("checkpoints")
def test_a_kept_run_goes_on_or_is_refused_before_work(way, tmp_path):
    example, folder = way.example, tmp_path / "run"
    keep = lb.Checkpoint(folder, every=1)
    if "checkpoints" in way.refuses:
        planned, asked = Calls(example.model), Calls(example.model)
        explained(way, planned.model)
        with pytest.raises(ArgumentError) as caught:
            lb.fit(asked.model, **example.call, method=way.method, checkpoint=keep)
        assert way.refuses["checkpoints"] in str(caught.value)
        assert "\nExpected " in str(caught.value)
        assert asked.count <= planned.count
        assert not folder.exists() or not [*folder.iterdir()]
        return
    kept = run(way, checkpoint=keep)
    assert_same(kept, fitted(way).fit)
    files = sorted(folder.iterdir())
    assert len(files) > 1
    files[-1].unlink()  # as though it had been killed before
    assert_same(lb.resume(folder, example.model, **example.call), fitted(way).fit)
    assert_same(lb.resume(folder, example.model, **example.call), fitted(way).fit)
