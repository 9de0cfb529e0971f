"""How much memory this process may take: of the machine, its container, and the accelerator."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jax

SHARE = 0.5  # of what is free: the estimates are rough, and others use the machine too
_GROUPS = (  # limit and use of a container: the second version of control groups, and the first
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)


@dataclass(frozen=True)
class Limits:
    """Bytes that are free now, and the share of them that one piece of work may take."""

    free: int

    @property
    def budget(self) -> int:
        """What one piece of work may take."""
        return int(SHARE * self.free)


def limits() -> Limits:
    """The memory that is free on the device that computes by default, now."""
    return Limits(_of_device() or min(_of_machine(), _of_container()))


def handed_back() -> None:
    """Give what was freed back to the system, where the allocator of the platform can.

    The one of Linux keeps arrays of up to 32 MB for itself, and never gives back what lies below
    one that is in use.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # another library than GNU's
        return None
    return found


def _of_device() -> int | None:
    """What is free on an accelerator; None on a CPU, and where the device does not say."""
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        return None
    found = device.memory_stats() or {}
    if "bytes_limit" not in found:
        return None
    return int(found["bytes_limit"]) - int(found.get("bytes_in_use", 0))


def _of_machine() -> int:
    """What the operating system could give, by what it says; what is built in, where it is mute."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            found = {name: amount for name, _, amount in (line.partition(":") for line in lines)}
        return 1024 * int(found["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError, IndexError):
        return _built_in()


def _built_in() -> int:
    if sys.platform == "darwin":
        found = subprocess.run(["sysctl", "-n", "hw.memsize"], capture_output=True, check=False)
        if found.stdout.strip().isdigit():
            return int(found.stdout)
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no such call
        return 8 << 30


def _of_container() -> int:
    """What is left below the limit of a container; a huge number where there is none.

    Pages of files count as used there, and are given up when memory is short.
    """
    for limit, used in _GROUPS:
        try:
            most = Path(limit).read_text(encoding="ascii").strip()
            now = int(Path(used).read_text(encoding="ascii"))
            files = _of_files(Path(used).with_name("memory.stat"))
        except (OSError, ValueError):
            continue
        if most.isdigit():
            return max(int(most) - now + files, 0)
    return sys.maxsize


def _of_files(statistics: Path) -> int:
    lines = statistics.read_text(encoding="ascii").splitlines()
    found = {name: int(amount) for name, _, amount in (line.partition(" ") for line in lines)}
    return found.get("inactive_file", found.get("total_inactive_file", 0))
