"""Where the rows of the data live: one axis of devices, in one process or in several.

Sums over rows are sums over devices of sums over their rows, so a fit on many devices is the fit
on one of them up to rounding. The compiler places the communication; this module places the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from lowerbound.errors import DevicesError

ROWS: Final = "rows"  # the name of the mesh's axis


@dataclass(frozen=True)
class Placement:
    """A line of devices over which rows are spread, in order and in equal parts."""

    mesh: Mesh

    @property
    def count(self) -> int:
        """The number of devices."""
        return int(self.mesh.devices.size)

    @cached_property
    def _owners(self) -> list[int]:
        return sorted({device.process_index for device in self.mesh.devices.flat})

    @property
    def processes(self) -> int:
        """The number of processes that own devices of the mesh."""
        return len(self._owners)

    @property
    def process(self) -> int:
        """The place of this process among them, from 0."""
        return self._owners.index(jax.process_index())

    @property
    def platform(self) -> str:
        """The kind of the devices: "cpu", "gpu", ..."""
        return str(self.mesh.devices.flat[0].platform)

    @property
    def key(self) -> tuple[object, ...]:
        """What tells one placement from another, for caches."""
        return tuple((d.platform, d.id) for d in self.mesh.devices.flat)

    @property
    def replicated(self) -> NamedSharding:
        """Every device holds the whole array."""
        return NamedSharding(self.mesh, PartitionSpec())  # type: ignore[no-untyped-call]

    def rows_sharding(self, axis: int = 0) -> NamedSharding:
        """Every device holds its part of the given axis."""
        spec = PartitionSpec(*(None,) * axis, ROWS)  # type: ignore[no-untyped-call]
        return NamedSharding(self.mesh, spec)

    def padded(self, rows: int) -> int:
        """The least multiple of the number of devices that holds so many rows."""
        return -(-rows // self.count) * self.count

    def shard(self, array: np.ndarray, axis: int = 0) -> jax.Array:
        """Spread the rows of an array that every process holds whole on its host.

        Only the rows of this process's own devices are copied to them.
        """
        whole = np.asarray(array)
        self._check_rows(whole.shape, axis, self.count)
        return self._placed(whole, self.rows_sharding(axis))

    def shard_local(self, array: np.ndarray, axis: int = 0) -> jax.Array:
        """Spread rows of which every process holds its own part, all parts equally long.

        The whole is the parts in the order of the processes.
        """
        own = np.asarray(array)
        mine = sum(d.process_index == jax.process_index() for d in self.mesh.devices.flat)
        if mine * self.processes != self.count:
            raise DevicesError.uneven(mine, self.count, self.processes)
        self._check_rows(own.shape, axis, mine)
        whole = list(own.shape)
        whole[axis] *= self.processes
        sharding = self.rows_sharding(axis)
        spread: jax.Array = jax.make_array_from_process_local_data(  # type: ignore[no-untyped-call]
            sharding, own, tuple(whole)
        )
        return spread

    def replicate(self, tree: Any) -> Any:
        """Copy arrays, equal in every process, to every device."""
        return jax.tree.map(lambda a: self._placed(np.asarray(a), self.replicated), tree)

    def fetch(self, tree: Any) -> Any:
        """Whole NumPy arrays on every process; all processes must call it together."""
        return whole(tree)

    def agree(self, value: float) -> np.ndarray:
        """The value that each process has, in their order; all processes must call it together."""
        own = np.full((self.count,), value)
        values = self.fetch(self._placed(own, self.rows_sharding(0)))
        owners = np.asarray([d.process_index for d in self.mesh.devices.flat])
        return np.asarray([values[owners == owner][0] for owner in self._owners])

    def _check_rows(self, shape: tuple[int, ...], axis: int, parts: int) -> None:
        if axis >= len(shape) or shape[axis] % parts:
            raise DevicesError.indivisible(shape, axis, parts)

    def _placed(self, whole: np.ndarray, sharding: NamedSharding) -> jax.Array:
        return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])


def whole(tree: Any) -> Any:
    """Arrays, wherever they live, as NumPy arrays; all processes must call it together."""
    return jax.tree.map(_whole, tree)


def _whole(array: Any) -> np.ndarray:
    if isinstance(array, jax.Array) and not array.is_fully_addressable:
        if not array.is_fully_replicated:
            return np.asarray(multihost_utils.process_allgather(array, tiled=True))
        return np.asarray(array.addressable_data(0))
    return np.asarray(array)


def placement(devices: Any) -> Placement | None:
    """The devices over which rows are spread; None for the default device alone.

    `devices` is None, a number (the first ones of jax.devices()), "all" (those of all processes),
    a sequence of JAX devices or a mesh of one axis.
    """
    if devices is None:
        return None
    if isinstance(devices, str):
        if devices != "all":
            raise DevicesError.not_devices(devices)
        return _checked(_ordered())
    if isinstance(devices, int) and not isinstance(devices, bool):
        available = _ordered()
        if not 1 <= devices <= len(available):
            raise DevicesError.too_many(devices, len(available), available[0].platform)
        return _checked(available[:devices])
    if isinstance(devices, Mesh):
        if devices.devices.ndim != 1:
            raise DevicesError.mesh(devices.axis_names)
        return _checked(list(devices.devices))
    if isinstance(devices, Sequence | np.ndarray):
        chosen = list(devices)
        if chosen and all(isinstance(device, jax.Device) for device in chosen):
            return _checked(chosen)
    raise DevicesError.not_devices(devices)


def _ordered() -> list[jax.Device]:
    """All devices, those of one process side by side: each process holds adjacent rows."""
    return sorted(jax.devices(), key=lambda device: (device.process_index, device.id))


def _checked(devices: list[jax.Device]) -> Placement:
    if len(set(devices)) < len(devices):
        raise DevicesError.twice([str(device) for device in devices])
    platforms = sorted({device.platform for device in devices})
    if len(platforms) > 1:
        raise DevicesError.platforms(platforms)
    if jax.process_index() not in {device.process_index for device in devices}:
        raise DevicesError.of_others(len(devices), jax.process_index(), jax.process_count())
    return Placement(Mesh(np.asarray(devices), (ROWS,)))
