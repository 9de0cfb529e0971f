"""`lb.check`: the verdict of a fit with all the evidence that some seconds can buy."""

from __future__ import annotations

from lowerbound.compiled import heard
from lowerbound.errors import NotAFitError, SettingError
from lowerbound.result.fitted import Fit
from lowerbound.result.verdicts import Verdict
from lowerbound.trust.judging import judged_within

DRAWS = 4096


def check(fit: Fit, seconds: float = 60.0) -> Verdict:
    """How far to trust a fit, as `fit.verdict` does, but with more draws and more time.

    q is compared with the posterior at thousands of draws: by importance weights where they are
    even; by draws of a Student law that is moved to the posterior; by short chains that start at q
    in many dimensions. The verdict says how far the means and sds are off, for the worst element of
    every site (`verdict.evidence.off`), with k-hat and the gap between the ELBO and the
    importance-weighted bound. Raises UnjudgedError where q has no density to compare.

    seconds: about what it may take, besides compilation.

    `coin` is the program in the example of `lb.fit`, `y` its data.

    >>> lb.check(lb.fit(coin, y, method=lb.Gaussian())).trust
    'all'
    """
    if not isinstance(fit, Fit):
        raise NotAFitError("check", fit)
    if not isinstance(seconds, int | float) or not seconds > 0:
        raise SettingError("check", "seconds", seconds, "a number above 0")
    with heard():
        return judged_within(fit, DRAWS, seconds)
