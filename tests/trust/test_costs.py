"""What a verdict costs, counted: it compiles less than its fit, and a second one traces nothing."""

import warnings

import jax
import jax.monitoring
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.cost.speed import machine
from lowerbound.trust import judging

pytestmark = pytest.mark.judged
EVENTS = ("backend_compile_duration", "jaxpr_trace_duration")


def regression(x, y):
    b = numpyro.sample("b", dist.Normal(0.0, 9.0).expand([2]).to_event(1))
    tau = numpyro.sample("tau", dist.Gamma(1.5, 1.0))
    numpyro.sample("y", dist.Normal(x @ b, tau**-0.5).to_event(1), obs=y)


def mixture(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 4.5).expand([2]).to_event(1))
    with numpyro.plate("rows", len(y)):
        c = numpyro.sample("c", dist.Categorical(np.array([0.4, 0.6])))
        numpyro.sample("y", dist.Normal(mu[c], 1.0), obs=y)


def scale(y):
    s = numpyro.sample("s", dist.HalfCauchy(1.5))
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Normal(0.0, s))
        numpyro.sample("y", dist.Normal(z, 1.5), obs=y)


def rate(y):
    r = numpyro.sample("r", dist.Gamma(1.75, 0.1))
    p = numpyro.sample("p", dist.Beta(2.0, 2.5))
    numpyro.sample("y", dist.Poisson(r * p).expand([len(y)]).to_event(1), obs=y)


Y = np.array([-3.1, -2.7, 2.9, 3.3, 2.4, 3.6])
X = np.random.default_rng(0).normal(size=(6, 2))
FITS = [
    pytest.param(regression, (X, Y), lb.CAVI(blocks=[["b"], ["tau"]]), id="factors"),
    pytest.param(mixture, (Y,), lb.CAVI(), id="summed out"),
    pytest.param(scale, (Y,), lb.CAVI(), id="free form"),
    pytest.param(rate, (np.arange(6.0),), lb.Gaussian(rank="diagonal"), id="Gaussian"),
    pytest.param(rate, (np.arange(6.0),), lb.Laplace(), id="Laplace"),
]


@pytest.fixture
def spent(monkeypatch):
    """How many programs fits and their verdicts have compiled and traced, by kind."""
    machine()  # which is measured once a process, and not by a verdict
    found = {part: dict.fromkeys(EVENTS, 0) for part in ("fit", "verdict")}
    within, judged = ["fit"], judging.judged

    def timed(*args, **kwargs):
        within.append("verdict")
        try:
            return judged(*args, **kwargs)
        finally:
            within.pop()

    def listen(event, duration, **about):
        name = event.rpartition("/")[2]
        if name in EVENTS:
            found[within[-1]][name] += 1

    monkeypatch.setattr(judging, "judged", timed)
    jax.monitoring.register_event_duration_secs_listener(listen)
    yield found
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.mark.parametrize(("model", "args", "method"), FITS)
def test_a_verdict_of_a_small_program_compiles_nothing(model, args, method, spent):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first = lb.fit(model, *args, method=method)
        # Where log p is small, NumPy does what is left: at most what converts an array is compiled.
        assert spent["verdict"]["backend_compile_duration"] <= 1
        for part in spent.values():
            part.update(dict.fromkeys(EVENTS, 0))
        second = lb.fit(model, *args, method=method)
    assert spent["verdict"] == dict.fromkeys(EVENTS, 0)
    assert second.verdict == first.verdict
    assert first.verdict.compared
