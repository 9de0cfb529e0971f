"""A program read from its output down to where it stops to be affine in z."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from lowerbound.methods.hierarchy.reading.dependence_kinds import AFFINE, DATA, kind_of
from lowerbound.methods.hierarchy.reading.element_maps import MOVED, placed_inputs
from lowerbound.methods.hierarchy.reading.flat_program import (
    Atom,
    FlatProgram,
    Known,
    Name,
    Operation,
)

CHAINED = frozenset({"add", "sub", "mul", "div", "neg", "convert_element_type"})
SUMMING = frozenset(
    ["add", "sub", "add_any", "neg", "reduce_sum", "scatter-add", "convert_element_type"]
)


@dataclass(eq=False)
class Reading:
    """A program read from its output down to the predictors.

    copies: moves of elements to several places, in each of which they are predictors.
    """

    flat: FlatProgram
    kinds: Mapping[Name, int]
    copies: Collection[Operation] = ()
    makers: dict[Name, Operation] = field(init=False)

    def __post_init__(self) -> None:
        self.makers = self.flat.makers

    def kind(self, atom: Atom) -> int:
        """What a value depends on."""
        return kind_of(self.kinds, atom)

    def cut(self) -> tuple[Name, ...]:
        """The affine values that curved operations begin at, and those that are summed."""
        found: dict[Name, None] = {}
        seen: set[Name] = set()
        # The second of a pair says whether sums alone lead from here to log p.
        open_ = [(atom, True) for atom in self.flat.outputs]
        while open_:
            atom, summed = open_.pop()
            if isinstance(atom, Known) or self.kind(atom) < AFFINE or atom in seen:
                continue
            if self.kind(atom) == AFFINE:
                base = self.base(atom)
                maker = self.makers.get(base)
                if summed and maker is not None and maker.kind == "reduce_sum":
                    open_.append((maker.inputs[0], True))
                else:
                    found[base] = None
                continue
            seen.add(atom)
            one = self.makers[atom]
            still = summed and self.sums(one)
            open_ += [(given, still) for given in one.inputs]
        return tuple(found)

    def sums(self, one: Operation) -> bool:
        """Whether an operation only adds up what it is given, or scales it by what z is not in."""
        kinds = [self.kind(atom) for atom in one.inputs]
        if one.kind in MOVED:
            return all(kinds[number] < AFFINE for number in placed_inputs(one))
        if one.kind in ("mul", "div"):
            return min(kinds) < AFFINE and (one.kind == "mul" or kinds[1] < AFFINE)
        return one.kind in SUMMING

    def summed(self, one: Operation) -> bool:
        """Whether what an operation makes is only added up, down to log p."""
        return all(name in self._added for name in one.outputs)

    @cached_property
    def _added(self) -> set[Name]:
        """The values that sums alone lead from to log p."""
        added = {name for one in self.flat.operations for name in one.outputs}
        added.update(self.flat.inputs)
        for one in reversed(self.flat.operations):
            if not (self.sums(one) and all(name in added for name in one.outputs)):
                added.difference_update(atom for atom in one.inputs if isinstance(atom, Name))
        return added

    def base(self, name: Name) -> Name:
        """The affine value whose elements, multiplied and shifted, those of `name` are."""
        while name in self.makers and (before := self.chained(self.makers[name])) is not None:
            name = before
        return name

    def chained(self, one: Operation) -> Name | None:
        """The one affine input each of whose elements goes on alone; None where they are added."""
        own = [atom for atom in one.inputs if self.kind(atom) == AFFINE]
        alone = one.kind in MOVED or one.kind in CHAINED
        if not alone or len(own) != 1 or not isinstance(own[0], Name):
            return None
        return None if one in self.copies else own[0]

    def places(self) -> list[Name]:
        """The values that say where elements go, and the matrices that z is multiplied by."""
        found: dict[Name, None] = {}
        for one in self.flat.operations:
            if max((self.kinds[name] for name in one.outputs), default=DATA) < AFFINE:
                continue
            numbers: Sequence[int] = ()
            if one.kind in MOVED:
                numbers = placed_inputs(one)
            elif one.kind == "dot_general":
                numbers = range(2)
            for number in numbers:
                atom = one.inputs[number]
                if isinstance(atom, Name) and self.kinds[atom] == DATA:
                    found[atom] = None
        return list(found)
