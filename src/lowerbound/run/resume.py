"""Going on with a run from its checkpoints: the same model, method, seed and data as before."""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from lowerbound.compute.computing import Computing
from lowerbound.compute.versions import versions
from lowerbound.errors import (
    NotPlainError,
    ResumeWarning,
    StorageError,
    UnableError,
    UnkeptError,
)
from lowerbound.joint.traced_program import trace_program
from lowerbound.model import Model
from lowerbound.model.inputs.arguments import named_leaves
from lowerbound.model.inputs.leaves import (
    Column,
    column_array,
    is_data,
    is_label,
    is_sparse,
    is_table,
    table_columns,
    whole_array,
)
from lowerbound.result.saved import check_model, model_record
from lowerbound.run.method import CHECKPOINTS, DEVICES, SINGLE, STREAMS, Method
from lowerbound.run.problem import Problem
from lowerbound.store.archive import check_plain
from lowerbound.store.checkpoint import KIND, Checkpoint, Keeper, available, found, read

DIGESTED = 64 * 2**20  # bytes of an array; of a larger one, evenly spaced rows


@dataclass(frozen=True)
class Interrupted:
    """A run as its newest checkpoint describes it, ready to go on."""

    problem: Problem
    method: Method
    keep: Keeper
    progress: dict[str, Any]
    ladder: tuple[str, ...]  # how the method was chosen


# --------------------------------------------------------------------------------------------------
# At the start of a run


def check_abilities(method: Method, problem: Problem, kept: bool) -> None:
    """Raise where a method is asked for what it cannot do."""
    computing = problem.computing
    asked = (
        (CHECKPOINTS, kept, "fit got checkpoint=", "keeps no state between its steps", "it"),
        (
            DEVICES,
            computing.devices is not None,
            "computing got devices=",
            "runs on one device",
            "them",
        ),
        (
            SINGLE,
            computing.precision == "float32",
            'computing got precision="float32"',
            "computes in double precision",
            "it",
        ),
    )
    for ability, wanted, what, why, which in asked:
        if wanted and ability not in method.abilities:
            raise UnableError.lacking(what, method.code, why, which)
        if wanted and ability not in method.abilities_for(problem):
            raise UnableError.with_parameters(what, method.code, why, which)
    if problem.streams and STREAMS not in method.abilities:
        raise UnableError.of_streams(method.code)


def start_keeping(
    checkpoint: Checkpoint | None, problem: Problem, method: Method, ladder: Sequence[str] = ()
) -> Keeper | None:
    """What writes the checkpoints of a new run; its folder is ready. `ladder` is the plan's."""
    if checkpoint is None:
        return None
    computing = problem.computing
    record = {
        "method": method_record(method),
        "seed": problem.seed,
        "precision": computing.precision,
        "devices": _devices_record(computing.devices),
        "ladder": list(ladder),
        "every": checkpoint.every,
        "model": model_record(problem.function),
        "data": fingerprint(problem.function, *problem.call),
        "versions": versions(),
        "platform": jax.default_backend(),
    }
    keep = Keeper(checkpoint, jax.process_index(), jax.process_count(), record)
    keep.prepare()
    return keep


def _devices_record(devices: Any) -> Any:
    if isinstance(devices, str | int | None):
        return devices
    raise UnkeptError.devices(devices)


def of_program(keep: Keeper, model: Model) -> Keeper:
    """With a digest of the traced program; raises when the run was started with another one."""
    program = trace_program(model)
    # Without the addresses of functions, which differ from one process to another.
    text = re.sub(r"0x[0-9a-f]+", "", f"{program.jaxpr.jaxpr}\n{program.static}")
    total = hashlib.sha256(text.encode())
    for array in map(np.asarray, program.jaxpr.consts):
        total.update(f"{array.dtype.str} {array.shape};".encode() + array.tobytes())
    digest = total.hexdigest()
    if keep.record.get("program", digest) != digest:
        raise StorageError(
            f"{keep.directory} holds a run of another program of the name "
            f"{model_record(model.function)['name']}: its distributions or constants were "
            "changed.\nExpected the model as it was when the run started. Undo the change, or "
            "start again in an empty folder."
        )
    return replace(keep, record={**keep.record, "program": digest})


# --------------------------------------------------------------------------------------------------
# After a kill


def interrupted(
    directory: str | os.PathLike[str], problem: Problem, methods: Iterable[type]
) -> Interrupted:
    """The run in a folder, after checking that model and data are those it was started with."""
    process, processes = jax.process_index(), jax.process_count()
    step = _newest(directory, process, processes)
    document = read(directory, step, process, processes)
    run = document["run"]
    try:
        _check_run(directory, run, problem.function, *problem.call)
        method = method_from(run["method"], methods)
        keep = Keeper(Checkpoint(directory, run["every"]), process, processes, run)
        computing = Computing(run["precision"], run["devices"])
        begun = replace(problem, seed=run["seed"], computing=computing)
        ladder = tuple(run["ladder"])
    except StorageError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise KIND.damaged(directory, f"its record does not fit together ({error})") from error
    keep.prepare(resumed=True)
    return Interrupted(begun, method, keep, document["progress"], ladder)


def _newest(directory: str | os.PathLike[str], process: int, processes: int) -> int:
    """The newest step that every process can read."""
    exists = Path(directory).is_dir()
    steps = {*available(directory, process, processes)} if exists else set()
    if processes > 1:
        from jax.experimental import multihost_utils

        own = np.full(8, -1, np.int32)
        own[: len(steps)] = sorted(steps, reverse=True)[:8]
        everyone = np.asarray(multihost_utils.process_allgather(own))
        steps = set.intersection(*({*row.tolist()} - {-1} for row in everyone))
    if steps:
        return max(steps)
    advice = (
        "Expected a folder that lb.fit(..., checkpoint=...) wrote to. Start the run with lb.fit."
    )
    if not exists:
        raise StorageError(f"There is no folder {directory}.\n{advice}")
    held = sorted(found(directory))
    own_steps = [s for s, *who in held if who == [process, processes]]
    if not held:
        raise StorageError(f"{directory} holds no checkpoint.\n{advice}")
    if not own_steps:
        raise StorageError(
            f"{directory} holds checkpoints of {held[-1][2]} processes; found {processes}, of "
            f"which this is number {process}.\nExpected as many processes as before, each with "
            "its own files. Start as many."
        )
    read(directory, own_steps[-1], process, processes)  # raises: says what is wrong with it
    raise StorageError(
        f"{directory} holds no step that all {processes} processes can read.\n"
        "Expected the files of all processes. Copy them back, or start again in an empty folder."
    )


def _check_run(
    directory: str | os.PathLike[str],
    run: Mapping[str, Any],
    model: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> None:
    check_model(f"{directory} holds a run", run["model"], model)
    _check_data(directory, run["data"], fingerprint(model, args, kwargs))
    if run["platform"] != jax.default_backend():
        raise StorageError(
            f"{directory} holds a run on {run['platform']}; found {jax.default_backend()}.\n"
            "Expected the same kind of device, as precision depends on it. Set "
            f"JAX_PLATFORMS={run['platform']}."
        )
    changed = [
        f"{name} {old} (now {versions().get(name)})"
        for name, old in run["versions"].items()
        if versions().get(name) != old
    ]
    if changed:
        warnings.warn(
            ResumeWarning(
                f"The run in {directory} was made with {', '.join(changed)}.\n"
                "It goes on, but perhaps not bit for bit as it would have. Install those versions "
                "to get the same bits."
            ),
            stacklevel=5,
        )


def _check_data(
    directory: str | os.PathLike[str], old: Mapping[str, str], new: Mapping[str, str]
) -> None:
    advice = "Expected the arguments that the run was started with, unchanged."
    for name in [*old, *new]:
        if old.get(name) != new.get(name):
            was, now = (one.get(name, "absent").partition("; ")[0] for one in (old, new))
            difference = "other values" if was == now else now
            raise StorageError(
                f"{directory} holds a run on other data: argument '{name}' was {was}; found "
                f"{difference}.\n{advice}"
            )


# --------------------------------------------------------------------------------------------------
# Methods as plain data


def method_record(method: Any) -> dict[str, Any]:
    """A method's name and settings as arrays and plain values."""
    name = type(method).__name__
    settings = {}
    for field in fields(method):
        value = getattr(method, field.name)
        try:
            settings[field.name] = _plain(value)
            check_plain(settings[field.name])
        except NotPlainError:
            raise UnkeptError.setting(name, field.name, value) from None
    return {"record": name, "settings": settings}


def method_from(record: Mapping[str, Any], classes: Iterable[type]) -> Any:
    """The method that `method_record` described, one of `classes`."""
    return _rebuilt(record, {one.__name__: one for one in classes})


def _plain(value: Any) -> Any:
    """A setting as arrays and plain values; every dict says what it stands for."""
    if isinstance(value, Mapping):
        return {"mapping": {key: _plain(item) for key, item in value.items()}}
    if isinstance(value, np.ma.MaskedArray):
        return {"masked": [np.asarray(value.data), np.ma.getmaskarray(value)]}
    if is_dataclass(value) and not isinstance(value, Column | type):
        return method_record(value)
    if isinstance(value, np.ndarray) or is_table(value) or is_sparse(value):
        return np.asarray(whole_array(value))
    if isinstance(value, tuple):
        return tuple(_plain(item) for item in value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(item) for item in value]
    return value


def _rebuilt(value: Any, classes: Mapping[str, type]) -> Any:
    if isinstance(value, Mapping):
        if "record" in value:
            settings = {k: _rebuilt(v, classes) for k, v in value["settings"].items()}
            return classes[value["record"]](**settings)
        if "masked" in value:
            data, mask = value["masked"]
            return np.ma.MaskedArray(data, mask)
        return {k: _rebuilt(v, classes) for k, v in value["mapping"].items()}
    if isinstance(value, list | tuple):
        return type(value)(_rebuilt(item, classes) for item in value)
    return value


# --------------------------------------------------------------------------------------------------
# Data as a few words


def fingerprint(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, str]:
    """What tells one call of the model from another: by argument, its type, shape and digest."""
    leaves, _, _ = named_leaves(function, args, kwargs)
    return {name: _words(leaf) for name, leaf in leaves}


def _words(leaf: Any) -> str:
    if isinstance(leaf, Column):
        return repr(leaf)
    if is_label(leaf):
        array = whole_array(leaf)
        digest = hashlib.sha256(repr(array.tolist()).encode()).hexdigest()
        return f"{array.dtype} of shape {array.shape}; sha256 {digest}"
    if not is_data(leaf):
        if isinstance(leaf, jax.Array):  # of no dimensions, or a key
            return f"{leaf.dtype}; {leaf}"
        plain = isinstance(leaf, bool | int | float | complex | str | None)
        return repr(leaf) if plain else f"a {type(leaf).__name__}"
    pieces = _pieces(leaf)
    total = hashlib.sha256()
    for piece in pieces:
        total.update(f"{piece.dtype.str} {piece.shape};".encode())
        total.update(np.ascontiguousarray(_some_rows(piece)).data.cast("B"))
    shape = tuple(leaf.shape) if hasattr(leaf, "shape") else (len(leaf),)
    return f"{pieces[0].dtype} of shape {shape}; sha256 {total.hexdigest()}"


def _pieces(leaf: Any) -> list[np.ndarray]:
    """The arrays that hold the values of a leaf."""
    if isinstance(leaf, np.ma.MaskedArray):
        return [leaf.filled(0), np.ma.getmaskarray(leaf)]
    if is_sparse(leaf):
        rows = leaf.tocsr()
        return [rows.data, rows.indices, rows.indptr]
    if is_table(leaf):
        return [column_array(column) for column in table_columns(leaf)]
    return [np.asarray(leaf)]


def _some_rows(array: np.ndarray) -> np.ndarray:
    if array.nbytes <= DIGESTED:
        return array
    count = max(DIGESTED // (array.nbytes // len(array)), 1)
    some: np.ndarray = array[np.linspace(0, len(array) - 1, count).astype(int)]
    return some
