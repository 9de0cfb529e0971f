"""Every fit: nothing is compiled twice, JAX's settings are untouched, results are float64."""

import jax
import numpy as np

import lowerbound as lb
from tests.laws.compilations import counted
from tests.laws.fitted import METHOD


def test_second_fit_of_the_same_shapes_compiles_nothing(fitted):
    make = fitted.case.small or fitted.case.arguments
    args, kwargs = make(1)
    first = fitted.arguments[0]
    assert not all(map(np.array_equal, args, first)), "the data are others"
    with counted() as compilations:
        lb.fit(fitted.case.model, *args, method=METHOD, seed=1, **kwargs)
    assert not compilations


def test_counting_sees_compilations():
    with counted() as compilations:
        jax.jit(lambda a: 3.0 * a)(np.ones(7))
    assert len(compilations) == 1


def test_settings_of_jax_are_untouched(fitted):
    before = dict(jax.config.values)
    assert not before["jax_enable_x64"]
    args, kwargs = fitted.arguments
    lb.fit(fitted.case.model, *args, method=METHOD, **kwargs)
    assert dict(jax.config.values) == before


def test_results_are_double(fitted):
    fit = fitted.fit
    assert fit.precision == "float64"
    assert fit.history.elbo.dtype == np.float64
    assert isinstance(fit.elbo, float)
    for leaf in jax.tree.leaves(fit.q.parameters):
        assert leaf.dtype == np.float64
    site = next(iter(fit.sites))
    law = fit.posterior[site]
    floating = [leaf.dtype for leaf in jax.tree.leaves(law) if leaf.dtype.kind == "f"]
    assert floating
    assert all(dtype == np.float64 for dtype in floating)
    assert fit.mean(site).dtype == fit.sd(site).dtype == np.float64
