"""What compilation costs, and the options that make it cheaper."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import jax
import jax.numpy as jnp

from lowerbound.compiled.rewriting import inner

# No LLVM optimisation, and one small module instead of many: half the time of a compilation.
_QUICK: Final = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}
# Half the optimisation of a loop that runs for seconds: it is as fast, and compiled in half the
# time.
_BRISK: Final = {
    "xla_backend_optimization_level": 1,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}
# No kernels tried against each other on an accelerator: programs compiled side by side wait
# for each other there, and take four times as long, for small products.
_UNTRIED: Final = {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False}


@cache
def quick_options() -> dict[str, Any]:
    """The options of quick compilation that this version of XLA knows."""
    return _known(_QUICK)


@cache
def brisk_options() -> dict[str, Any]:
    """Those of compilation for loops of some seconds."""
    return _known(_BRISK)


@cache
def untried_options() -> dict[str, Any]:
    """Those of programs for an accelerator that are compiled side by side."""
    return _known(_UNTRIED)


def _known(options: Mapping[str, Any]) -> dict[str, Any]:
    def known(*names: str) -> bool:
        try:
            jax.jit(jnp.negative, compiler_options={name: options[name] for name in names})(1.0)
        except Exception:  # an unknown option raises differently from version to version
            return False
        return True

    if known(*options):
        return dict(options)
    return {name: value for name, value in options.items() if known(name)}


def equations(jaxpr: Any) -> int:
    """How many operations a jaxpr holds, inner ones included: what its compilation costs."""
    return len(jaxpr.eqns) + sum(equations(sub) for e in jaxpr.eqns for sub in inner(e))
