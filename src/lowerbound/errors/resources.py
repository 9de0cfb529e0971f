"""What the machine lacks: memory, time, a compiled kernel, or devices that fit the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lowerbound.errors.roots import ArgumentError, LowerboundError, LowerboundWarning, case, told


class TooLargeError(LowerboundError):
    """Some work needs more memory than there is, even in its smallest parts (megabytes)."""

    def __init__(self, what: str, needed: float, free: float) -> None:
        super().__init__(
            f"Not enough memory: {what} needs about {needed:,.0f} MB, and "
            f"{free:,.0f} MB are free.\n"
            "Expected work that fits; nothing was allocated. Use less at once (fewer rows with "
            "method=lb.SVI(batch_size=...), fewer draws), a coarser model, or a machine with more "
            "memory."
        )


class TooDenseError(LowerboundError):
    """A sparse precision leaves too many entries that meet, once independent ones are eliminated.

    `left` of `size` are left, and at most `most` can be factored as a dense matrix.
    """

    def __init__(self, size: int, left: int, most: int) -> None:
        super().__init__(
            f"Of {size:,} effects, {left:,} are left that meet each other once those that are "
            "independent given the others are eliminated.\n"
            f"Expected at most {most:,} such effects, whose covariance is dense, or effects of "
            "which most meet few others. Use fewer basis functions, levels or knots, or a method "
            "without a joint covariance, e.g. method=lb.CAVI()."
        )


_NAMED = "or name the method, e.g. method=lb.Gaussian(starts=1), and it takes as long as it needs."


class TooSlowError(LowerboundError):
    """One step of an automatic fit would take longer than all of it may."""

    def __init__(self, points: int, seconds: float, most: float) -> None:
        super().__init__(
            f"The log density and its gradient at {points} points, one step of the fit, take "
            f"about {seconds:,.0f} s on this machine.\n"
            f"Expected a step within the {most:g} s that an automatic fit may take. Compute "
            f"what all rows share once, not in every row; use fewer rows; {_NAMED}"
        )


class TooLongToCompileError(LowerboundError):
    """The compilation of a program would take longer than all of an automatic fit may."""

    def __init__(self, operations: int, seconds: float, most: float) -> None:
        super().__init__(
            f"The log density has {operations:,} operations, which take about "
            f"{seconds:,.0f} s to compile on this machine.\n"
            f"Expected a program that compiles within the {most:g} s that an automatic fit "
            "may take. Write a Python loop over steps or rows as jax.lax.scan (with sites inside, "
            f"numpyro.contrib.control_flow.scan) or as arrays; {_NAMED}"
        )


class TooManySitesError(LowerboundError):
    """A program, most likely a Python loop, states more sites than can be read one by one."""

    def __init__(self, most: int, name: str, where: str) -> None:
        super().__init__(
            f"The program states more than {most:,} sites; '{name}' is the next   ({where})\n"
            f"Expected at most {most:,}, since each is derived and compiled on its own, about 0.1 "
            "s for an observed number and more for a latent one. Write a Python loop over rows as "
            "numpyro.plate with arrays, and one over steps as numpyro.contrib.control_flow.scan."
        )


class DevicesError(ArgumentError):
    """Devices that cannot be computed on together, or rows that cannot be spread over them."""

    @told
    def not_devices(cls, devices: Any) -> None:
        """devices={devices!r} is no choice of devices.

        Expected None (one device), a number of devices, "all", a sequence of JAX devices, or a
        jax.sharding.Mesh of one axis.
        """

    @told
    def too_many(cls, devices: int, available: int, platform: str) -> None:
        """devices={devices}, but JAX sees {available} ({platform}).

        Expected a number from 1 to {available}. On CPU, set
        XLA_FLAGS=--xla_force_host_platform_device_count=N before JAX starts.
        """

    @told
    def mesh(cls, axes: Sequence[str]) -> None:
        """devices is a mesh with axes {axes:joined}.

        Expected a mesh of one axis: the rows of the data are all that is spread.
        """

    @case
    def twice(cls, devices: Sequence[str]) -> str:
        """A device is named twice."""
        return f"devices names a device twice: {', '.join(devices)}.\nExpected every device once."

    @case
    def platforms(cls, found: Sequence[str]) -> str:
        """Devices of several kinds stand together."""
        return f"devices mixes platforms: {', '.join(found)}.\nExpected devices of one kind."

    @told
    def of_others(cls, devices: int, process: int, processes: int) -> None:
        """None of the {devices} devices belongs to process {process} of {processes}.

        Expected some in every process that fits. Use devices="all".
        """

    @told
    def uneven(cls, own: int, devices: int, processes: int) -> None:
        """This process has {own} of the {devices} devices of {processes} processes.

        Expected as many devices in every process, as each holds an equal part of the rows. Start
        every process with the same number of devices.
        """

    @told
    def indivisible(cls, shape: tuple[int, ...], axis: int, parts: int) -> None:
        """An array of shape {shape} cannot be spread along axis {axis}.

        Expected a multiple of {parts} rows, as many on each of {parts} devices. Pad the rows, or
        choose another number of devices.
        """

    @told
    def other_data(cls, argument: str, process: int) -> None:
        """Argument '{argument}' of process {process} differs from that of process 0.

        Expected the same call of fit in every process: each takes its own rows of the same data.
        """


class NativeKernelWarning(LowerboundWarning):
    """The compiled kernel of topics is not there, and XLA takes its place."""

    def __init__(self) -> None:
        super().__init__(
            "The compiled kernel of topics is not built on this machine, so topics run on XLA, "
            "which is slower on CPU.\nInstall a C++ compiler and reinstall lowerbound, or say "
            "that this is meant: with lb.computing(devices=1)."
        )
