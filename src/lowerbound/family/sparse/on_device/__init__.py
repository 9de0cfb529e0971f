"""A stage whose rest is implicit, on an accelerator: all that is large stays there.

Blocks D are factored, D = L L', and W = L^-1 B is held twice, by the blocks and by the columns that
they meet, so that W v and W' u are both sums of `Chunks`. Bases of Lanczos are made there too, and
the host is told of small matrices and of results. Everything is in float64.
"""

from lowerbound.family.sparse.on_device.device_stage import (
    DeviceFactor,
    DeviceStage,
    has_accelerator,
)

__all__ = ["DeviceFactor", "DeviceStage", "has_accelerator"]
