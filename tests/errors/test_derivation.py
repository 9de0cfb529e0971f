"""Where log p is no function of statistics: which site, through what, and in which line."""

from __future__ import annotations

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
