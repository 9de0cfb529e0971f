"""A law of all estimators by coordinate ascent: the ELBO never falls."""

import numpy as np

import lowerbound as lb


def assert_rises(model) -> None:
    """Sweep by sweep, up to rounding."""
    with lb.computing(verdicts=False):
        elbo = np.asarray(model.result_.history.elbo)
    assert (np.diff(elbo) >= -1e-9 * (1.0 + abs(elbo[1:]))).all()
