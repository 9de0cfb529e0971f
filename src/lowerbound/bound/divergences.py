"""What a method makes small: a divergence from q to the posterior, as a value (paper section 5.3).

Every method names its own; `KL` is the paper's (eq:elbo). Others go here, with the bound or the
objective that belongs to them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KL:
    """KL(q || p), the expectation under q of log q - log p: the ELBO is -KL up to the evidence."""

    name: str = "KL(q || p)"


@dataclass(frozen=True)
class Fisher:
    """The expectation under q of the squared difference of the scores of q and p.

    In the norm of q's covariance, as batch and match has it (Cai et al. 2024).
    """

    name: str = "Fisher(q || p)"


@dataclass(frozen=True)
class Local:
    """No divergence: log p to second order at one point (Laplace, the delta method)."""

    name: str = "local expansion of log p"


Divergence = KL | Fisher | Local
