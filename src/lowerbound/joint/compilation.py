"""Compiling quickly: for functions that run once, or on little data."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import jax
import jax.numpy as jnp

# No LLVM optimisation, and one small module instead of many: half the time of a compilation.
_QUICK: Final = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}


@cache
def quick_options() -> dict[str, Any]:
    """The options of quick compilation that this version of XLA knows."""

    def known(name: str) -> bool:
        try:
            jax.jit(jnp.negative, compiler_options={name: _QUICK[name]})(1.0)
        except Exception:  # an unknown option raises differently from version to version
            return False
        return True

    return {name: value for name, value in _QUICK.items() if known(name)}


def quickly(function: Callable[..., Any]) -> Any:
    """Jit the function for speed of compilation rather than of execution."""
    return jax.jit(function, compiler_options=quick_options())
