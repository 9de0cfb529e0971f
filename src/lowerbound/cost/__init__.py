"""What work costs, before it is done: seconds on this machine, and bytes at once.

In: programs (jaxprs) and counts of how often they run. Out: a `Cost` in seconds and megabytes;
maps over many points in parts that fit in memory; a refusal, with the numbers, where no part does.
"""

from lowerbound.cost.allowance import AFFORDABLE, Allowance, allowance, at_most
from lowerbound.cost.estimate import USUAL, Cost
from lowerbound.cost.jaxpr_cost import numbers_computed, peak_bytes, products_computed
from lowerbound.cost.memory import Limits, limits
from lowerbound.cost.parts import affordable_count, check_fits, mapped, run_bytes
from lowerbound.cost.speed import Machine, machine
from lowerbound.cost.stopwatch import Stopwatch
from lowerbound.cost.work import Alternative, Work

__all__ = [
    "Cost",
    "USUAL",
    "Work",
    "Alternative",
    "Machine",
    "Stopwatch",
    "machine",
    "AFFORDABLE",
    "Allowance",
    "allowance",
    "at_most",
    "Limits",
    "limits",
    "numbers_computed",
    "products_computed",
    "peak_bytes",
    "affordable_count",
    "check_fits",
    "mapped",
    "run_bytes",
]
