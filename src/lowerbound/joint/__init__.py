"""log p(x, z) as a multi-affine function of sufficient statistics (paper sections 2.4 and 4.1).

Contract: `multi_affine(model)` returns a `Joint` whose `compress` contracts the data once; then
`energy(summands, arrays, statistics)` is E_q[log p] exactly, and `gradient` of it with respect to
one block's mean parameters is that block's optimal natural parameter (eq:optimal-qj).
"""

from lowerbound.joint.blocks.block import Block
from lowerbound.joint.certificate import certificate
from lowerbound.joint.energy.summands import (
    Statistics,
    Summand,
    energies_and_gradient,
    energy,
    gradient,
)
from lowerbound.joint.multiaffine import Joint, multi_affine
from lowerbound.joint.traced_program import inputs_of

__all__ = [
    "Block",
    "Joint",
    "Statistics",
    "Summand",
    "certificate",
    "energies_and_gradient",
    "energy",
    "gradient",
    "inputs_of",
    "multi_affine",
]
