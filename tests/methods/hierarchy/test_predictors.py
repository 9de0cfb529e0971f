"""A program is read as functions of linear predictors, however it is written."""

from __future__ import annotations

from functools import cache

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from lowerbound.compiled import quickly
from lowerbound.errors import NoPredictorsError
from lowerbound.methods.hierarchy.finding_theta import predictors_of
from lowerbound.methods.hierarchy.inner.parabolas import surface_of
from lowerbound.methods.hierarchy.predictors import Predictors
from lowerbound.model import trace_model
from tests.methods.hierarchy.written import WRITTEN

STEP = 1e-4


@cache
def read(name: str) -> Predictors:
    """Read once, and compiled once, for all tests."""
    written = WRITTEN[name]
    with jax.enable_x64(True):
        return predictors_of(trace_model(written.program, (), written.data, None))


@pytest.fixture(scope="module", params=list(WRITTEN))
def case(request):
    return WRITTEN[request.param], read(request.param)


def vectors(one: Predictors, seed: int):
    rng = np.random.default_rng(seed)
    return 0.3 * rng.normal(size=one.dimension), 0.5 * rng.normal(size=one.size)


def density(one: Predictors, t: np.ndarray, z: np.ndarray) -> float:
    """The log density of the program itself, of levels where these are the coordinates."""
    volume = 0.0
    if one.back is not None:
        volume = np.linalg.slogdet(one.back.matrix(t).toarray())[1]
        z = one.back(t, z)
    parts, rest = {}, np.concatenate([t, z])
    for site in (*one.theta, *one.z):
        shape = one.coordinates.shapes[site]
        count = int(np.prod(shape, dtype=int))
        parts[site], rest = rest[:count].reshape(shape), rest[count:]
    if "density" not in one.compiled:
        one.compiled["density"] = quickly(one.coordinates.log_density_at)
    with jax.enable_x64(True):
        return volume + float(one.compiled["density"](parts, dict(one.model.arguments.data)))


def test_what_is_integrated(case):
    written, one = case
    assert set(one.theta) == set(written.theta)
    assert one.is_quadratic == written.quadratic


def test_the_terms_of_the_predictors_are_the_density(case):
    _, one = case
    for seed in range(3):
        t, z = vectors(one, seed)
        eta = one.at(t, z)
        products = np.bincount(one.rows, one.entries(t) * z[one.columns], minlength=one.count)
        np.testing.assert_allclose(eta, one.at(t, 0 * z) + products, rtol=1e-10, atol=1e-10)
        found = one.expected(t, eta, np.zeros(one.lines)).value
        np.testing.assert_allclose(found, density(one, t, z), rtol=1e-10)


def test_slopes_by_theta_are_those_of_the_bound(case):
    _, one = case
    surface = surface_of(one)
    t, _ = vectors(one, 5)
    here = surface(t, (), True)
    assert here is not None
    assert here.slope is not None
    for number, slope in enumerate(here.slope):
        move = STEP * np.eye(one.dimension)[number]
        up, down = (surface(t + sign * move, [here], True) for sign in (1, -1))
        assert up is not None
        assert down is not None
        by_difference = (up.value - down.value) / (2 * STEP)
        np.testing.assert_allclose(slope, by_difference, rtol=2e-3, atol=2e-3)


def test_the_bound_of_parabolas_is_the_log_evidence_given_theta(case):
    """Exactly: log p(x, theta) = log p(x, z, theta) - log q(z | theta), at whatever z."""
    written, one = case
    if not written.quadratic:
        return
    surface = surface_of(one)
    t, z = vectors(one, 6)
    here = surface(t, (), False)
    assert here is not None
    matrix = np.zeros((one.size, one.size))
    gram = surface.gram
    matrix[gram.rows, gram.columns] = matrix[gram.columns, gram.rows] = surface.precision(here)
    away = z - here.loc
    log_q = 0.5 * (np.linalg.slogdet(matrix)[1] - one.size * np.log(2 * np.pi))
    log_q -= 0.5 * away @ matrix @ away
    np.testing.assert_allclose(here.value, density(one, t, z) - log_q, rtol=1e-9)


@pytest.mark.parametrize(
    "names",
    [
        ("centred", "noncentred", "by_matrix", "by_loop"),
        ("chain", "chain_by_factor", "recurrence"),
        ("area", "area_sparse", "area_by_matrix"),
        ("field", "field_by_matrix"),
        ("members", "members_by_gather"),
        ("rates", "log_rates"),
        ("softmax", "softmax_by_hand"),
    ],
)
def test_two_ways_to_write_one_model_have_the_same_surface(names):
    surfaces = [surface_of(read(name)) for name in names]
    t = np.array([-0.4, 0.2, 0.3])[: surfaces[0].predictors.dimension]
    values = [surface(t, (), False).value for surface in surfaces]
    exact = surfaces[0].predictors.is_quadratic
    np.testing.assert_allclose(values, values[0], rtol=1e-10 if exact else 1e-6)


def test_the_precision_of_a_field_has_entries_between_neighbours_alone():
    for name in ("area", "field_by_matrix"):
        one = read(name)
        gram = surface_of(one).gram
        start = one.size - 12  # the field comes last
        inside = (gram.columns >= start) & (gram.rows != gram.columns)
        assert inside.sum() == 17, name


def test_what_a_loop_carries_has_an_entry_for_every_number_of_z_and_not_for_every_step():
    """One for every step makes as many pairs in its last rows as steps squared: gigabytes."""
    one = read("filtered")
    assert len(one.rows) <= 2 * one.count * one.size


@pytest.mark.parametrize("name", ["softmax", "location_and_scale", "items", "zeros"])
def test_expectations_of_predictors_that_meet_are_averages_over_draws_of_z(name):
    """Value, slopes and W, as A' W A, beside 40,000 draws: to five of their standard errors.

    Of some 200 numbers in all, one is farther away in a run of 10^4.
    """
    written = WRITTEN[name]
    with jax.enable_x64(True):
        one = predictors_of(trace_model(written.program, (), written.data, None))
    assert one.lines > one.count
    surface = surface_of(one)
    t, z = vectors(one, 3)
    rng = np.random.default_rng(1)
    root = 0.15 * (np.eye(one.size) + rng.normal(size=(one.size, one.size)) / np.sqrt(one.size))
    half = z + rng.normal(size=(20_000, one.size)) @ root.T
    draws = np.concatenate([half, 2 * z - half])

    entries = one.entries(t)
    dense = np.zeros((one.count, one.size))
    np.add.at(dense, (one.rows, one.columns), entries)
    lines = np.zeros((one.lines, one.size))
    np.add.at(lines, (one.joint.row, one.columns[one.joint.entry]), entries[one.joint.entry])
    variance = ((lines @ root) ** 2).sum(axis=1)
    found = one.expected(t, one.at(t, z), variance)

    names = [(n, one.coordinates.shapes[n]) for n in (*one.theta, *one.z)]

    def log_p(vector):
        parts, rest = {}, vector
        for site, shape in names:
            count = int(np.prod(shape, dtype=int))
            parts[site], rest = rest[:count].reshape(shape), rest[count:]
        return one.coordinates.log_density_at(parts, dict(one.model.arguments.data))

    with jax.enable_x64(True):
        both = quickly(jax.vmap(jax.value_and_grad(lambda z: log_p(jax.numpy.append(t, z)))))
        values, slopes = map(np.asarray, both(draws))
    away = np.linalg.solve(root, (draws - z).T).T
    turned = -slopes[:, :, None] * np.linalg.solve(root.T, away.T).T[:, None, :]
    matrix = np.zeros((one.size, one.size))
    gram = surface.gram
    matrix[gram.rows, gram.columns] = matrix[gram.columns, gram.rows] = gram.values(
        gram.products(entries[one.joint.entry]), found.curvature
    )
    for exact, drawn in (
        (found.value, values),
        (dense.T @ found.slope, slopes),
        (matrix, 0.5 * (turned + turned.swapaxes(1, 2))),
    ):
        pairs = 0.5 * (drawn[:20_000] + drawn[20_000:])
        error = pairs.std(axis=0) / np.sqrt(20_000)
        assert (abs(exact - pairs.mean(axis=0)) < 5 * error + 1e-6 * (1 + abs(exact))).all()


def test_a_softmax_of_many_classes_is_refused():
    def program(y):
        tau = numpyro.sample("tau", dist.HalfNormal(1))
        a = numpyro.sample("a", dist.Normal(0, tau).expand([9]).to_event(1))
        numpyro.sample("y", dist.Categorical(logits=a).expand([len(y)]), obs=y)

    with jax.enable_x64(True), pytest.raises(NoPredictorsError, match="meet"):
        predictors_of(trace_model(program, (np.arange(9),), {}, None))


@pytest.mark.parametrize("centre", [0.0, 5e3])
def test_a_kink_is_no_parabola(centre):
    """|z| has no second derivative anywhere but where it matters."""

    def lasso(x, y):
        scale = numpyro.sample("scale", dist.HalfCauchy(1.0))
        b = numpyro.sample("b", dist.Laplace(0.0, scale).expand([3]).to_event(1))
        numpyro.sample("y", dist.Normal(x @ b, 1.0), obs=y)

    def absolute(x, y):
        scale = numpyro.sample("scale", dist.HalfCauchy(1.0))
        b = numpyro.sample("b", dist.Normal(0.0, 10.0).expand([3]).to_event(1))
        numpyro.sample("y", dist.Laplace(x @ b, scale), obs=y)

    def smooth(x, y):
        scale = numpyro.sample("scale", dist.HalfCauchy(1.0))
        b = numpyro.sample("b", dist.Normal(0.0, scale).expand([3]).to_event(1))
        numpyro.sample("y", dist.Normal(x @ b, 1e-2), obs=y)

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 3)), centre + rng.normal(size=20)
    with jax.enable_x64(True):
        models = [trace_model(m, (x, y), {}) for m in (lasso, absolute, smooth)]
        found = [predictors_of(model).is_quadratic for model in models]
    assert found == [False, False, True]


def test_a_solution_far_from_its_start_is_found_through_tails_that_curve_upwards():
    """Student errors and a Student prior, ten scales from where the steps begin."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(6), 8)
    y = 300.0 + 20.0 * rng.normal(size=6)[group] + 25.0 * rng.standard_t(5, size=48)

    def program(y):
        centre = numpyro.sample("centre", dist.StudentT(3.0, 290.0, 60.0))
        tau = numpyro.sample("tau", dist.HalfNormal(40.0))
        sigma = numpyro.sample("sigma", dist.HalfNormal(40.0))
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([6]).to_event(1))
        numpyro.sample("y", dist.StudentT(5.0, centre + tau * z[group], sigma), obs=y)

    with jax.enable_x64(True):
        one = predictors_of(trace_model(program, (y,), {}, None))
    surface = surface_of(one)
    places = [np.log([20.0, scale]) for scale in (5.0, 25.0, 100.0)]
    for t in places:
        found = surface(t, (), False)
        assert found is not None
        centre = found.loc[one.groups == one.z.index("centre")]
        assert abs(centre - 300.0) < 30.0
