"""What the machine lacks: memory, time, a compiled kernel, or devices that fit the rows."""

from __future__ import annotations

from lowerbound.errors.roots import LowerboundError, LowerboundWarning, record


@record
class TooLargeError(LowerboundError):
    """Some work needs more memory than there is, even in its smallest parts (megabytes)."""

    what: str
    needed: float
    free: float

    def __str__(self) -> str:
        return (
            f"Not enough memory: {self.what} needs about {self.needed:,.0f} MB, and "
            f"{self.free:,.0f} MB are free.\n"
            "Expected work that fits; nothing was allocated. Use less at once (fewer rows with "
            "method=lb.SVI(batch_size=...), fewer draws), a coarser model, or a machine with more "
            "memory."
        )


_NAMED = "or name the method, e.g. method=lb.Gaussian(starts=1), and it takes as long as it needs."


@record
class TooSlowError(LowerboundError):
    """One step of an automatic fit would take longer than all of it may."""

    points: int
    seconds: float
    most: float

    def __str__(self) -> str:
        return (
            f"The log density and its gradient at {self.points} points, one step of the fit, take "
            f"about {self.seconds:,.0f} s on this machine.\n"
            f"Expected a step within the {self.most:g} s that an automatic fit may take. Compute "
            f"what all rows share once, not in every row; use fewer rows; {_NAMED}"
        )


@record
class TooLongToCompileError(LowerboundError):
    """The compilation of a program would take longer than all of an automatic fit may."""

    operations: int
    seconds: float
    most: float

    def __str__(self) -> str:
        return (
            f"The log density has {self.operations:,} operations, which take about "
            f"{self.seconds:,.0f} s to compile on this machine.\n"
            f"Expected a program that compiles within the {self.most:g} s that an automatic fit "
            "may take. Write a Python loop over steps or rows as jax.lax.scan (with sites inside, "
            f"numpyro.contrib.control_flow.scan) or as arrays; {_NAMED}"
        )


class NativeKernelWarning(LowerboundWarning):
    """The compiled kernel of topics is not there, and XLA takes its place."""

    def __str__(self) -> str:
        return (
            "The compiled kernel of topics is not built on this machine, so topics run on XLA, "
            "which is slower on CPU.\nInstall a C++ compiler and reinstall lowerbound, or pass "
            'engine="xla" to say that this is meant.'
        )
