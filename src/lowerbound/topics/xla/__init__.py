"""The engine of compiled array programs: GPUs, several devices, and any CPU.

In: documents packed into tables of a few lengths. Out: the steps of `topics.engine`, by plain XLA
or, on a GPU, by a fused kernel.
"""

from lowerbound.topics.xla.arrays_engine import XlaEngine

__all__ = ["XlaEngine"]
