"""Which sites are free-form: scalars whose terms are any functions of one number at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from lowerbound.joint.blocks.block import Block, Layout, Read
from lowerbound.joint.blocks.kind import Kind, Misfit, Uses
from lowerbound.joint.latents import Latent
from lowerbound.joint.terms.domain import INTERVAL, POSITIVE, UNIT
from lowerbound.joint.terms.expression import Expression, text
from lowerbound.joint.terms.functions import Element, Functions
from lowerbound.joint.terms.indices import Label
from lowerbound.joint.terms.labelled import Atom, Factor

MOST_NUMBERS = 200_000  # in a statistic, each evaluated at every node of a quadrature


class OfFunctions(Kind):
    """The part of the free-form family that looks at terms."""

    kind: ClassVar[str] = "free"
    name: ClassVar[str] = "Free"
    domains: ClassVar = (POSITIVE, UNIT, INTERVAL)
    free_form: ClassVar[bool] = True

    @classmethod
    def misfit(cls, latent: Latent, uses: Uses, sequential: bool = False) -> Misfit | None:
        """What no factor of one number at a time can absorb."""
        for entry, factors in uses:
            if sequential and len(factors) > 1:
                left = " * ".join(str(f.atom) for f in factors)
                return Misfit(latent.name, entry.site, left, "its elements meet in one term")
            for factor in factors:
                size = math.prod((*latent.shape, *_expression(factor).sizes))
                if size > MOST_NUMBERS:
                    reason = f"{size} functions of it are too many for a quadrature"
                    return Misfit(latent.name, entry.site, str(factor.atom), reason)
        return None

    @classmethod
    def block(cls, latent: Latent, uses: Uses = (), sequential: bool = False) -> Block:
        """The block of a site, with the functions that its terms hold."""
        atoms = {f.atom: _expression(f) for _, factors in uses for f in factors}
        bounds = {POSITIVE: (0.0, math.inf), UNIT: (0.0, 1.0)}
        lower, upper = bounds.get(latent.domain, (latent.lower, latent.upper))
        static: dict[str, Any] = {
            "trees": tuple(e.tree for e in atoms.values()),
            "sizes": tuple(e.sizes for e in atoms.values()),
            "axes": tuple(e.axes for e in atoms.values()),
            "lower": lower,
            "upper": upper,
        }
        layout = Layout(latent.shape, tuple(range(len(latent.shape))))
        return Block(0, cls, {latent.name: layout}, latent.shape, static, atoms=tuple(atoms))

    @classmethod
    def read(
        cls, block: Block, factors: Sequence[Factor[Atom]], private: set[Label]
    ) -> list[Read] | None:
        """The function itself, which is a statistic of its own."""
        if len(factors) != 1 or factors[0].atom not in block.atoms:
            return None
        number = block.atoms.index(factors[0].atom)
        shape = (*block.batch_shape, *block.static["sizes"][number])
        return [Read(block.number, f"s{number}", (), shape, factors[0].index)]

    @classmethod
    def constants(cls, block: Block) -> dict[str, Any]:
        """The arrays inside the functions: "s0a0", "s0a1", ..."""
        return {
            f"s{s}a{k}": array
            for s, atom in enumerate(block.atoms)
            for k, array in enumerate(atom.expression.arrays if atom.expression else ())
        }

    @classmethod
    def text(cls, block: Block, site: str) -> str:
        """The functions as formulas."""
        return ", ".join(text(tree, site) for tree in block.static["trees"])


def _expression(factor: Factor[Atom]) -> Expression:
    """The function that a factor is, named ones too."""
    if factor.atom.expression is not None:
        return factor.atom.expression
    return Expression(Functions(Element.of(factor)).factor(factor))
