"""A problem: a program with its data, a seed, and where and in which precision to compute."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar, cast

import jax

from lowerbound.compute.computing import Computing
from lowerbound.compute.engine import derived
from lowerbound.errors import ParameterSiteError
from lowerbound.joint import Joint
from lowerbound.model import Model, trace_model
from lowerbound.model.inputs.leaves import Column, is_leaf
from lowerbound.rewrite.parameters import Parameters, find_parameters, parametrised_model

R = TypeVar("R")


@dataclass(frozen=True, eq=False)
class Problem:
    """What a method is given: everything that it may depend on besides its own settings.

    The program is traced once, when `model` is first asked for; methods and rungs share it.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    computing: Computing = field(default_factory=Computing)
    _found: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def model(self) -> Model:
        """The program as it was traced; raises ParameterSiteError where it has parameters."""
        with jax.enable_x64(True):
            return trace_model(self.function, self.args, self.kwargs)

    @property
    def joint(self) -> Joint:
        """What is derived of the program, its sites grouped by structure."""
        return self.derived(None)

    def derived(self, blocks: Sequence[Sequence[str]] | None) -> Joint:
        """What is derived of the program with these blocks."""
        with jax.enable_x64(True):
            return derived(self.program, blocks)

    @cached_property
    def has_parameters(self) -> bool:
        """Whether the program has sites of `numpyro.param`."""
        if self.streams:
            return False
        try:
            _ = self.model
        except ParameterSiteError:
            return True
        return False

    @cached_property
    def parameters(self) -> Parameters:
        """The parameters of the program, at their starting values."""
        with jax.enable_x64(True):
            return find_parameters(self.function, self.args, self.kwargs, self.seed)

    @cached_property
    def parametrised(self) -> Model:
        """The program as a function of its parameters: they are data of it, as they start."""
        with jax.enable_x64(True):
            return parametrised_model(self.function, self.parameters, *self.call)

    @property
    def program(self) -> Model:
        """The program as it was traced, with or without parameters."""
        return self.parametrised if self.has_parameters else self.model

    @property
    def streams(self) -> bool:
        """Whether some argument is a column of a stream."""
        leaves = jax.tree.leaves((self.args, dict(self.kwargs)), is_leaf=is_leaf)
        return any(isinstance(leaf, Column) for leaf in leaves)

    @property
    def call(self) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """The arguments."""
        return self.args, self.kwargs

    def known(self, key: object) -> Any:
        """What was found before under a key; None where nothing was."""
        return self._found.get(key)

    def once(self, key: Hashable, find: Callable[[], R]) -> R:
        """What `find` gives: rungs, plans and costs that ask for the same thing share it."""
        if key not in self._found:
            with jax.enable_x64(True):
                self._found[key] = find()
        return cast(R, self._found[key])

    def of(self, function: Callable[..., Any], *call: Any) -> Problem:
        """The same problem for another program; `call` are its arguments where they differ."""
        args, kwargs = call if call else self.call
        return replace(self, function=function, args=args, kwargs=kwargs)
