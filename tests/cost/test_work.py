"""What work is counted for a method: operations, numbers and products, before any is done."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpy.testing import assert_allclose
from numpyro.contrib.control_flow import scan
from numpyro.distributions.transforms import OrderedTransform

import lowerbound as lb
from lowerbound.cost import Work, products_computed
from lowerbound.ladder.costs import work_of
from lowerbound.ladder.counted import DIFFERENTIATED, DRAWN, JUDGED, MORE, UNHURRIED, Counted
from lowerbound.ladder.exchangeable import exchangeable
from lowerbound.ladder.factor_work import CHAIN, KINDS
from lowerbound.ladder.gaussian_work import IN_ANY_CASE, few_points, most_points
from lowerbound.methods.gaussian.target import Target, counts_of
from lowerbound.methods.rewriting.augmenting import augmented_problem
from lowerbound.methods.rewriting.summed_out import summed_problem
from lowerbound.run.problem import Problem

RNG = np.random.default_rng(0)
SERIES = np.cumsum(RNG.normal(size=40))
SIGMA = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
EFFECTS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])


def schools(sigma, y=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("schools", len(sigma)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)


def recursion(y):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    expected = w[0] * jnp.tanh(w[1] * y[:-1] + w[2])
    numpyro.sample("y", dist.Normal(expected, 1.0), obs=y[1:])


def test_products_are_those_of_linear_algebra_loops_included():
    def products(function, *shapes):
        return products_computed(jax.make_jaxpr(function)(*map(np.zeros, shapes)).jaxpr)

    def repeated(a):
        return jax.lax.scan(lambda carry, _: (a @ carry, None), a[:, 0], None, length=7)[0]

    assert products(jnp.matmul, (3, 4), (4, 5)) == 3 * 4 * 5
    assert products(jax.vmap(jnp.dot), (10, 6), (10, 6)) == 60
    assert products(jnp.linalg.cholesky, (6, 6)) == 6**3 // 2
    assert products(repeated, (4, 4)) == 7 * 16
    assert products(lambda x: jnp.exp(x) * x, (9,)) == 0


def test_more_rows_more_numbers_and_more_nodes_cost_more():
    with jax.enable_x64(True):

        def work(model, *args, method):
            return work_of(Problem(model, args), method)

        short = work(recursion, SERIES, method=lb.Gaussian())
        long = work(recursion, np.tile(SERIES, 100), method=lb.Gaussian())
        assert long.numbers > 3 * short.numbers
        grid = work(schools, SIGMA, EFFECTS, method=lb.Given(("tau",)))
        finer = work(schools, SIGMA, EFFECTS, method=lb.Given(("mu", "tau")))
        assert finer.numbers > grid.numbers
        assert work(recursion, SERIES, method=lb.CAVI()) is None  # it has no such fit


def written_out(y):
    level = numpyro.sample("level", dist.Normal(0.0, 1.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    for t in range(len(y)):
        level = 0.5 * level + 0.1
        numpyro.sample(f"y{t}", dist.Normal(level, sigma), obs=y[t])


def test_long_programs_and_more_starts_cost_more():
    with jax.enable_x64(True):

        def work(y, method):
            return work_of(Problem(written_out, (y,)), method)

        short, long = (work(SERIES[:n], lb.Given(("sigma",))) for n in (4, 40))
        assert long.operations > 1.5 * short.operations
        one, two, six = (work(SERIES[:4], lb.CAVI(restarts=n)) for n in (1, 2, 6))
        start = two.numbers - one.numbers  # what judges the fit is done once
        assert six.numbers == pytest.approx(one.numbers + 5 * start)
        judged = Counted(Problem(written_out, (SERIES[:4],))).judged(Work(0.0)).numbers
        assert one.numbers == pytest.approx(start + judged)


def test_what_judges_a_fit_is_part_of_it():
    def mixture(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with numpyro.plate("rows", len(y)):
            c = numpyro.sample("c", dist.Categorical(jnp.ones(2) / 2))
            numpyro.sample("y", dist.Normal(mu[c], 1.0), obs=y)

    def only_discrete(y):
        with numpyro.plate("rows", len(y)):
            c = numpyro.sample("c", dist.Categorical(jnp.ones(2) / 2))
            numpyro.sample("y", dist.Normal(jnp.array([-1.0, 1.0])[c], 1.0), obs=y)

    with jax.enable_x64(True):
        both, alone = (
            work_of(Problem(program, (SERIES,)), lb.CAVI()) for program in (mixture, only_discrete)
        )
    assert both.operations > alone.operations + JUDGED


def regression(x, y):
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(x @ beta, 1.0), obs=y)


@pytest.mark.judged
def test_a_density_that_is_too_dear_is_not_compared():
    """So says the verdict of such a fit: to measure it would take longer."""
    work = Work(100.0, 1e6)
    with jax.enable_x64(True):
        counted = Counted(Problem(schools, (SIGMA, EFFECTS), {}))
        assert counted.judged(work).numbers > work.numbers
        counted.states, counted.numbers = 2, 10**11  # which are summed out at every draw
        assert counted.judged(work) == work


@pytest.mark.judged
def test_a_dear_density_is_looked_at_at_fewer_points():
    """As the verdict does: so many seconds of an ordinary core, and some draws at any price."""

    def points(rows):
        counted = Counted(Problem(regression, (np.ones((rows, 3)), np.ones(rows))))
        work = counted.judged(Work(0.0))
        return work.numbers / (UNHURRIED * counted.density.numbers)

    with jax.enable_x64(True):
        few, many, most = (points(rows) for rows in (10, 100_000, 10_000_000))
    assert few == DRAWN[1] + MORE[1]
    assert most < many < few
    assert most == pytest.approx(DRAWN[0], rel=0.5)


@pytest.mark.judged
def test_what_judges_a_fit_is_counted_on_the_unconstrained_density():
    """A transform that the program does not write, such as to a simplex, is a part of log p."""

    def shares(y):
        p = numpyro.sample("p", dist.Dirichlet(jnp.ones(4)))
        numpyro.sample("y", dist.Multinomial(10, p), obs=y)

    with jax.enable_x64(True):
        counted = Counted(Problem(shares, (np.array([1, 2, 3, 4]),)))
        found = counted.judged(Work(0.0)).operations
    assert counted.density.operations > counted.operations
    assert found == JUDGED + DIFFERENTIATED * counted.density.operations


def test_starts_of_several_kinds_take_longer_to_compile():
    with jax.enable_x64(True):
        problem = Problem(written_out, (SERIES[:4],))
        one, two, six = (work_of(problem, lb.CAVI(restarts=n)) for n in (1, 2, 6))
    assert two.operations == six.operations > 2 * one.operations


def test_the_sums_along_a_path_are_compiled_once_whatever_the_starts():
    with jax.enable_x64(True):
        problem = Problem(two_paths, (SERIES, 2, False))
        one, six = (work_of(problem, lb.CAVI(restarts=n)) for n in (1, 6))
        summands = len(problem.joint.structure.summands)
    assert six.operations - one.operations < (KINDS - 1) * (50 * summands + 1000) + CHAIN


def test_an_augmented_program_costs_what_coordinate_ascent_on_it_does():
    def logistic(x, y):
        beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Bernoulli(logits=x @ beta), obs=y)

    x = RNG.normal(size=(30, 2))
    method = lb.Augmented({"y": "polya-gamma"}, lb.CAVI())
    with jax.enable_x64(True):
        problem = Problem(logistic, (x, (x[:, 0] > 0).astype(float)))
        found = work_of(problem, method)
        inner = work_of(augmented_problem(problem, {"y": "polya-gamma"}), lb.CAVI())
    assert found == inner
    assert found.operations > 0


def test_counts_of_an_augmented_program_have_a_cost_though_their_shares_have_no_density():
    def shares(counts):
        with numpyro.plate("topics", 2):
            phi = numpyro.sample("phi", dist.Dirichlet(jnp.full(5, 0.3)))
        with numpyro.plate("documents", len(counts)):
            theta = numpyro.sample("theta", dist.Dirichlet(jnp.ones(2)))
            law = dist.Multinomial(probs=theta @ phi, total_count=counts.sum(-1))
            numpyro.sample("counts", law, obs=counts)

    problem = Problem(shares, (RNG.integers(0, 9, (6, 5)),))
    bare = Counted(problem)
    work = work_of(problem, lb.Augmented({"counts": "indicator"}, lb.CAVI()))
    assert work is not None
    assert bare.judged(Work(0.0)).operations < work.operations  # what judges it is counted


@pytest.mark.parametrize("size", [3, 30])
def test_gaussian_factors_cost_the_cube_of_their_numbers(size):
    def correlated(x, y):
        tau = numpyro.sample("tau", dist.Gamma(2.0, 2.0))
        beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(x @ beta, tau**-0.5), obs=y)

    def flops(count):
        problem = Problem(correlated, (RNG.normal(size=(8, count)), SERIES[:8]))
        return work_of(problem, lb.CAVI()).flops

    with jax.enable_x64(True):
        assert flops(2 * size) == pytest.approx(8 * flops(size))
        assert flops(1) == 0.0


def hidden(x, y):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2, 12]).to_event(2))
    v = numpyro.sample("v", dist.Normal(0.0, 1.0).expand([12]).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(jnp.tanh(x[:, None] * w[0] + w[1]) @ v, 0.3), obs=y)


def labelled(x, y):
    """As `hidden`, with units that have places of their own."""
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2, 12]).to_event(2))
    v = numpyro.sample("v", dist.Normal(0.0, 1.0).expand([12]).to_event(1))
    place = jnp.linspace(-1.0, 1.0, 12)
    with numpyro.plate("rows", len(y)):
        unit = jnp.tanh(x[:, None] * w[0] + w[1] + place)
        numpyro.sample("y", dist.Normal(unit @ v, 0.3), obs=y)


def in_order(y):
    mu = numpyro.sample(
        "mu", dist.TransformedDistribution(dist.Normal(jnp.zeros(3), 1.0), OrderedTransform())
    )
    law = dist.MixtureSameFamily(dist.Categorical(jnp.ones(3) / 3), dist.Normal(mu, 0.5))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", law, obs=y)


def in_any_order(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    law = dist.MixtureSameFamily(dist.Categorical(jnp.ones(3) / 3), dist.Normal(mu, 0.5))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", law, obs=y)


@pytest.mark.parametrize(
    ("model", "args", "can"),
    [
        (hidden, (SERIES, SERIES), True),
        (labelled, (SERIES, SERIES), False),
        (in_any_order, (SERIES,), True),
        (in_order, (SERIES,), False),
        (schools, (SIGMA, EFFECTS), False),
        (recursion, (SERIES,), False),
    ],
)
def test_components_can_be_exchanged_where_nothing_tells_them_apart(model, args, can):
    with jax.enable_x64(True):
        assert exchangeable(Problem(model, args).model) is can


def test_components_that_can_be_exchanged_cost_what_the_limits_of_an_ascent_allow():
    x = np.tile(SERIES, 20)
    with jax.enable_x64(True):
        problems = [Problem(m, (x, x)) for m in (hidden, labelled)]
        same, apart = (work_of(problem, lb.Gaussian()) for problem in problems)
        counts = [Counted(problem) for problem in problems]
        few, most = (
            [points(one, lb.Gaussian(), one.density.size) for one in counts]
            for points in (few_points, most_points)
        )
    # Steps are work in proportion to the points; what can be exchanged takes the most of these,
    # and what cannot lies as far from the most as from the least, in powers.
    sizes = [one.density.size for one in counts]
    each = [work.flops / size**2 for work, size in zip((same, apart), sizes, strict=True)]
    assert_allclose(each[0] / each[1], most[0] / math.sqrt(few[1] * most[1]), rtol=1e-9)
    assert most[0] > 5 * few[0]
    assert same.numbers > apart.numbers


def test_coordinates_that_are_tried_cost_steps():
    with jax.enable_x64(True):
        problem = Problem(schools, (SIGMA, EFFECTS))
        methods = [lb.Gaussian(noncentred=sites) for sites in ("auto", ("theta",))]
        some, none = (work_of(problem, method) for method in methods)
        counted = Counted(problem)
        few, fewer = (few_points(counted, method, counted.density.size) for method in methods)
    assert few > 1.2 * fewer
    assert some.flops > none.flops  # in proportion to the points


def test_the_points_of_an_ascent_are_those_foretold_within_a_factor_of_three(monkeypatch):
    """Counted, not timed: the same on every machine."""
    evaluated = []

    def counting(target, vectors, few=False):
        evaluated.append(len(vectors))
        return own(target, vectors, few)

    own = Target.__call__
    monkeypatch.setattr(Target, "__call__", counting)
    with lb.computing(verdicts=False):
        lb.fit(recursion, SERIES, method=lb.Gaussian())
    with jax.enable_x64(True):
        counted = Counted(Problem(recursion, (SERIES,)))
        foretold = few_points(counted, lb.Gaussian(), 3)
    assert foretold / 3 < sum(evaluated) < 3 * foretold


def test_a_gaussian_of_one_site_costs_less_than_one_of_all():
    """Unless the exact factors of the others are large: their sweeps cost the cube of them."""

    def partly(y):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([len(y)]).to_event(1))
        w = numpyro.sample("w", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(z * jnp.sin(w), 1.0).to_event(1), obs=y)

    with jax.enable_x64(True):
        problem = Problem(partly, (SERIES,))
        whole, part = (work_of(problem, m) for m in (lb.Gaussian(), lb.Over(("w",))))
        large = work_of(Problem(partly, (np.tile(SERIES, 5),)), lb.Over(("w",)))
    assert part.numbers - IN_ANY_CASE < 0.5 * (whole.numbers - IN_ANY_CASE)
    assert large.flops > 100 * part.flops


def test_the_cost_of_a_sum_is_that_of_the_program_without_discrete_sites():
    def mixture(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0).expand([2]))
        with numpyro.plate("rows", len(y)):
            z = numpyro.sample("z", dist.Bernoulli(0.5))
            numpyro.sample("y", dist.StudentT(4.0, mu[z], 1.0), obs=y)

    with jax.enable_x64(True):
        problem = Problem(mixture, (SERIES,))
        found = work_of(problem, lb.Gaussian())
        counts = counts_of(summed_problem(problem)[1].model)
    assert found.operations > 3 * counts.operations  # its gradient is compiled for several uses
    assert found.bytes < 1e8


def two_paths(y, K, together):
    """Two hidden paths: each has its own data, or they meet in one mean."""
    with numpyro.plate("states", K):
        A = numpyro.sample("A", dist.Dirichlet(jnp.ones(K)))
        B = numpyro.sample("B", dist.Dirichlet(jnp.ones(K)))
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))

    def step(before, y):
        a = numpyro.sample("a", dist.Categorical(A[before[0]]))
        b = numpyro.sample("b", dist.Categorical(B[before[1]]))
        numpyro.sample("y", dist.Normal(mu[a] + (mu[b] if together else 0.0), 1.0), obs=y)
        numpyro.sample("x", dist.Normal(mu[b], 1.0), obs=y)
        return (a, b), None

    scan(step, (0, 0), y)


def test_a_sweep_costs_the_states_that_meet_in_a_term():
    """Not all combinations of states: those of two paths that have data of their own are apart."""

    def numbers(K, together):
        problem = Problem(two_paths, (RNG.normal(size=400), K, together), {})
        return work_of(problem, lb.CAVI()).numbers

    apart = numbers(8, False)
    assert 3 < numbers(16, False) / apart < 4.5  # pairs of states of one path
    assert apart < numbers(8, True) < 3 * apart


def test_rows_of_a_mixture_cost_what_their_components_do():
    def mixture(x, K):
        with numpyro.plate("components", K):
            mu = numpyro.sample("mu", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
        with numpyro.plate("rows", len(x)):
            c = numpyro.sample("c", dist.Categorical(jnp.full(K, 1 / K)))
            numpyro.sample("x", dist.Normal(mu[c], 1.0).to_event(1), obs=x)

    def numbers(n, K):
        with lb.computing(verdicts=False):
            return work_of(Problem(mixture, (RNG.normal(size=(n, 2)), K), {}), lb.CAVI()).numbers

    assert 8 < numbers(200_000, 5) / numbers(20_000, 5) < 10  # a little whatever the rows are
    assert 1.5 < numbers(200_000, 10) / numbers(200_000, 5) < 2.5
    assert numbers(20_000, 5) < 60 * 20_000 * 100  # a hundred numbers for a row in a sweep
