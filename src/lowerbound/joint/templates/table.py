"""The densities that are known, by the name of the distribution: one line each.

A distribution that is not listed still tries the jaxpr of its own `log_prob`.
"""

from __future__ import annotations

from typing import Final

from lowerbound.joint.templates.augmented import AUGMENTED
from lowerbound.joint.templates.conjugate import CONJUGATE
from lowerbound.joint.templates.nonconjugate import NONCONJUGATE
from lowerbound.joint.templates.template import Template

TEMPLATES: Final[dict[str, Template]] = {**CONJUGATE, **NONCONJUGATE, **AUGMENTED}
