"""One clean density per distribution: what a template is.

NumPyro's own `log_prob` hides the algebra behind numerical guards (clips, where, is_finite), so the
density is stated once, as on paper, in the arithmetic of `Value`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lowerbound.joint.terms.indices import Array
from lowerbound.joint.terms.value import Operand

LOG_TWO_PI = math.log(2.0 * math.pi)


@dataclass(frozen=True)
class Template:
    """How to read a distribution's parameters, and its log density in them.

    `density(x, **parameters)` has the shape of `log_prob(x)`; parameters that are strings choose
    among its forms.
    """

    parameters: Callable[[Any], dict[str, Array]]
    density: Callable[..., Operand]
    # Parameters that are constants of the factor of a latent site, with their names there.
    constants: tuple[tuple[str, str], ...] = ()
    tolerance: float = 1e-9  # relative, to which NumPyro's own density is this formula

    @classmethod
    def named(cls, density: Callable[..., Operand], **settings: Any) -> Template:
        """Parameters that the distribution has under the names that the density gives them."""
        _, *names = inspect.signature(density).parameters
        return cls(lambda d: {name: getattr(d, name) for name in names}, density, **settings)
