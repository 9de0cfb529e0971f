"""The full text of the errors that later stages raise."""

from __future__ import annotations

import pytest

from lowerbound import errors

SOFTPLUS = errors.Residual(
    site="y",
    latents=("w",),
    operation="softplus(w)",
    reason="not a monomial",
    where="model.py:14",
    family="MultivariateNormal",
    statistics="w, w w'",
    left_over="softplus(w)",
)


def test_not_conjugate():
    error = errors.NotConjugateError([SOFTPLUS])
    assert error.residuals == (SOFTPLUS,)
    assert str(error) == (
        "CAVI needs log p to be affine in the statistics of every latent site.\n"
        "  Site 'w' enters site 'y' through softplus(w)   (model.py:14)\n"
        "  statistics of MultivariateNormal: w, w w';  left over: softplus(w)\n"
        'Use method="auto": quadrature, a few scalars on a grid or a Gaussian, where no exact '
        "update exists. Or augment the site: lb.Augmented({site: ...}, lb.CAVI())."
    )


def test_batches_that_need_exact_updates():
    error = errors.NotConjugateError([SOFTPLUS])
    lines = str(error.of_batches("SVI", streamed=True)).splitlines()
    assert lines[0] == "SVI needs log p to be affine in the statistics of every latent site."
    assert lines[1:-1] == str(error).splitlines()[1:-1]
    assert lines[-1] == (
        "A stream is read in batches, and batches add up by such statistics alone. Pass all rows "
        'as arrays, for which method="auto" has a Gaussian; or augment the site: '
        "lb.Augmented({...}, lb.SVI(...))."
    )
    assert str(error.of_batches("Memoized", streamed=False)).splitlines()[-1] == (
        'Use method="auto", which takes all rows at once: quadrature, a few scalars on a grid or '
        "a Gaussian, where no exact update exists. Or augment the site: lb.Augmented({...}, "
        "lb.Memoized(...))."
    )


def test_the_remedy_is_an_attribute():
    class Later(errors.NotConjugateError):
        remedy = "Use method=\"auto\" (exact elsewhere, quadrature or Monte Carlo for 'w')."

    assert str(Later([SOFTPLUS])).endswith("\n" + Later.remedy)


def test_not_conjugate_without_a_family_gives_the_reason():
    residual = errors.Residual("y", ("a", "b"), "sort(...)", "no rule for sort", "model.py:3")
    assert "\n".join(str(errors.NotConjugateError([residual])).splitlines()[1:3]) == (
        "  Sites 'a', 'b' enter site 'y' through sort(...)   (model.py:3)\n  no rule for sort"
    )


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            errors.ZeroVarianceError("x", 2, 1.5),
            "Column 2 of 'x' has zero variance: every entry is 1.5.\n"
            "Expected values that vary. Drop the column, or give its scale a fixed value.",
        ),
        (
            errors.ZeroVarianceError("y", None, 0.0),
            "Argument 'y' has zero variance: every entry is 0.\n"
            "Expected values that vary. Drop the column, or give its scale a fixed value.",
        ),
        (
            errors.TooManyComponentsError("K", 7, 5),
            "K = 7 components for 5 rows of data.\n"
            "Expected at most one component per row. Use K <= 5.",
        ),
        (
            errors.ReservedNameError("seed", "mixture"),
            "The model mixture has an argument 'seed', a name that fit keeps for itself.\n"
            "Fix it beforehand, functools.partial(model, seed=...), or rename the argument.",
        ),
        (
            errors.BlockError(["a", "b"], "three statistics", "model.py:9"),
            "No factor q for 'a', 'b': three statistics   (model.py:9).\n"
            "Rewrite the model so that each site has one conjugate role.",
        ),
        (
            errors.CertificateError(1.5, 2.5),
            "The derived form of log p(x, z) is 1.5 at a draw from the prior; NumPyro's log "
            "density is 2.5.\n"
            "Expected equality up to rounding. This is a fault of the derivation, not of the "
            "model: please report it with the model.",
        ),
        (
            errors.UncertifiedError(40, ["y"]),
            "The derived form of log p(x, z) could not be checked: the log density is not finite "
            "at any of 40 points, with the likeliest value of every discrete site at each. Where "
            "it was tried last, 'y' has density zero.\n"
            "Expected points of positive density, to compare it with NumPyro's own there. Check "
            "the data against the model: an impossible value, or a scale that underflows. "
            "lb.fit(..., method=lb.Gaussian(init={site: value, ...})) needs no derivation.",
        ),
        (
            errors.ZeroDensityError(0.125, 1024, ["Site 'y' has log density -inf at a draw of q."]),
            "The ELBO is not finite: the density is zero, or no number, at 12.5% of 1024 draws of "
            "q.\n"
            "  Site 'y' has log density -inf at a draw of q.\n"
            "Expected a density that is positive nearly everywhere that q reaches. Give the sites "
            "supports that leave out what is impossible (a truncated prior, bounds of a Uniform), "
            "write the program so that it is finite there, or use "
            "method=lb.Gaussian(init={site: value, ...}) to start well inside.",
        ),
        (
            errors.DecreasingBoundError(-1.0, -2.0, 3),
            "The ELBO fell from -1.0 to -2.0 nats in sweep 3.\n"
            "Expected a coordinate sweep never to lower it. This is a fault or a loss of "
            "precision: the fit is not reported as converged.",
        ),
        (
            errors.ConvergenceWarning("1000 sweeps"),
            "The fit stopped before it converged: 1000 sweeps.\n"
            "Raise the limit, or loosen tolerance.",
        ),
    ],
)
def test_texts(error, text):
    assert str(error) == text


def test_a_falling_bound_is_an_error_and_a_warning_with_one_text():
    values = (-1.0, -2.0, 3)
    assert str(errors.DecreasingBoundWarning(*values)) == str(errors.DecreasingBoundError(*values))
    assert issubclass(errors.DecreasingBoundWarning, UserWarning)
    assert issubclass(errors.ConvergenceWarning, UserWarning)
