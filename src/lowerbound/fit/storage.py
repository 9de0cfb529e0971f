"""Saving and loading fits: one zip of arrays (`.npy`) and one JSON text. Loading can run no code.

The members are stored, not compressed, and named in the JSON with their SHA-256; the comment of the
zip holds the format, its number and the SHA-256 of the JSON. NumPy reads the arrays of a file as
those of any `.npz`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import io
import json
import math
import os
import re
import secrets
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.errors import Residual
from lowerbound.family.meanfield import MeanField
from lowerbound.fit.plan import Plan, Row
from lowerbound.fit.posterior import History, Restart
from lowerbound.fit.predict import new_call
from lowerbound.fit.result import Fit
from lowerbound.fit.saved import Saved, StorageError, check_sites
from lowerbound.joint import Block
from lowerbound.joint.blocks import Layout
from lowerbound.model import trace_model
from lowerbound.update import State
from lowerbound.version import __version__

FORMAT = 1
_TEXT = "fit.json"
_COMMENT = re.compile(rb"lowerbound fit; format (\d{1,9}); sha256 ([0-9a-f]{64})")
_ARRAY_NAME = re.compile(r"arrays/\d{1,6}\.npy")
_KINDS = "biufcU"  # dtypes that are written: no objects, which would need pickle
# What zipfile raises on bytes that are no zip, besides BadZipFile.
_ZIP_ERRORS = (EOFError, NotImplementedError, RuntimeError, ValueError, OverflowError, struct.error)
_PLAIN = ("elbo", "converged", "stop_reason", "method", "seed", "versions", "precision", "sites")


# --------------------------------------------------------------------------------------------------
# Save


def save(fit: Fit, path: str | os.PathLike[str]) -> None:
    """Write a fit to one file, at once or not at all."""
    saved = _saved(fit)
    arrays: list[np.ndarray] = []
    document = {
        "model": {"name": _name(fit.function), "arguments": _parameters(fit.function)},
        "written_by": __version__,
        "plan": {f.name: getattr(fit.plan, f.name) for f in dataclasses.fields(Plan)}
        | {"rows": [dataclasses.asdict(row) for row in fit.plan.rows]}
        | {"residuals": [dataclasses.asdict(r) for r in fit.plan.residuals]},
        "history": {f.name: getattr(fit.history, f.name) for f in dataclasses.fields(History)},
        "restarts": [dataclasses.asdict(restart) for restart in fit.restarts],
        "blocks": [_block_record(block) for block in fit.family.blocks],
        "naturals": [dict(natural) for natural in fit.state.naturals],
        "means": [dict(mean) for mean in fit.state.means],
        "partition": None if fit.blocks is None else [tuple(block) for block in fit.blocks],
        "saved": {f.name: getattr(saved, f.name) for f in dataclasses.fields(Saved)},
        **{name: getattr(fit, name) for name in _PLAIN},
    }
    encoded = _encode(document, arrays)["dict"]
    members = {f"arrays/{i}.npy": _npy(array) for i, array in enumerate(arrays)}
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in members.items()}
    text = json.dumps({"arrays": digests, **encoded}, allow_nan=False, indent=1).encode()
    comment = f"lowerbound fit; format {FORMAT}; sha256 {hashlib.sha256(text).hexdigest()}"
    _write(Path(path), {_TEXT: text, **members}, comment.encode())


def _saved(fit: Fit) -> Saved:
    """What to keep of the call: everything but data with one row per row of the data plate."""
    if fit.args is None:
        assert fit.saved is not None
        return fit.saved
    with jax.enable_x64(True):
        model = trace_model(fit.function, fit.args, fit.kwargs)
    terms = fit.elbo_terms
    signature = inspect.signature(fit.function)
    old = signature.bind(*fit.args, **fit.kwargs).arguments
    args, kwargs = new_call(model, fit.args, fit.kwargs, (), {})
    left = signature.bind(*args, **kwargs).arguments
    rows = tuple(n for n, value in old.items() if value is not None and left[n] is None)
    kept, unsaved = {}, []
    for name in (n for n in old if n not in rows):
        try:
            _encode(old[name], [])
            kept[name] = old[name]
        except _NotPlainError:
            unsaved.append(name)
    return Saved(terms, kept, rows, tuple(unsaved))


def _block_record(block: Block) -> dict[str, Any]:
    record = {f.name: getattr(block, f.name) for f in dataclasses.fields(Block)}
    layouts = {name: dataclasses.asdict(layout) for name, layout in block.layouts.items()}
    return {**record, "layouts": layouts}


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _parameters(function: Callable[..., Any]) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def _write(path: Path, members: Mapping[str, bytes], comment: bytes) -> None:
    """Write a temporary file beside `path`, then put it in its place."""
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        try:
            with open(temporary, "xb") as file:
                with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                    archive.comment = comment
                    for name, content in members.items():
                        archive.writestr(zipfile.ZipInfo(name), content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(
            f"Cannot write {path}: {error.strerror or error}.\n"
            "Expected the name of a file in an existing folder that you may write to."
        ) from error


# --------------------------------------------------------------------------------------------------
# Load


def load(path: str | os.PathLike[str], model: Callable[..., Any], *args: Any, **kwargs: Any) -> Fit:
    """Read a fit of `model` that `fit.save(path)` wrote.

    The file holds the posterior but not the data. `args` and `kwargs` are the data and settings
    that the fit was made with: give them to use what needs the old rows (deterministic sites,
    replicated data); without them everything else works, on new data too.
    """
    document = _document(path)
    try:
        name, arguments = document["model"]["name"], list(document["model"]["arguments"])
        fit = _fit(document, model)
    except StorageError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(path, f"its record does not fit together ({error})") from error
    if (name, arguments) != (_name(model), _parameters(model)):
        raise StorageError(
            f"{path} holds a fit of {name}({', '.join(arguments)}); found the model "
            f"{_name(model)}({', '.join(_parameters(model))}).\n"
            "Pass the model that was fitted. If it was only renamed, set "
            f"model.__name__ = {name!r}."
        )
    if not args and not kwargs:
        return fit
    traced = trace_model(model, args, kwargs)
    shapes = {site: record["shape"] for site, record in fit.sites.items()}
    check_sites(shapes, {site: latent.shape for site, latent in traced.latent.items()})
    return dataclasses.replace(fit, args=args, kwargs=kwargs)


def _fit(document: dict[str, Any], model: Callable[..., Any]) -> Fit:
    plan = document["plan"]
    rows = tuple(Row(**row) for row in plan["rows"])
    residuals = tuple(Residual(**residual) for residual in plan["residuals"])
    blocks = tuple(
        Block(**{**b, "layouts": {name: Layout(**layout) for name, layout in b["layouts"].items()}})
        for b in document["blocks"]
    )
    family = MeanField.of(blocks)
    state = State(tuple(document["naturals"]), tuple(document["means"]))
    _check_state(family, state, document["precision"])
    return Fit(
        history=History(**document["history"]),
        restarts=tuple(Restart(**restart) for restart in document["restarts"]),
        plan=Plan(**{**plan, "rows": rows, "residuals": residuals}),
        state=state,
        family=family,
        function=model,
        args=None,
        kwargs={},
        blocks=document["partition"],
        saved=Saved(**document["saved"]),
        **{name: document[name] for name in _PLAIN},
    )


def _check_state(family: MeanField, state: State, precision: str) -> None:
    for one, natural, mean in zip(family.families, state.naturals, state.means, strict=True):
        shapes = one.statistic_shapes()
        extras = dict.fromkeys(one.extra_names, one.batch_shape)
        for parameters, expected in ((natural, shapes | extras), (mean, shapes)):
            found = {name: np.shape(array) for name, array in parameters.items()}
            if found != expected:
                raise ValueError(f"{one.name} has parameters {found}, expected {expected}")
    if precision not in ("float32", "float64"):
        raise ValueError(f"precision {precision}")


def _document(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The record in a file, after every check that needs no knowledge of its content."""
    try:
        with zipfile.ZipFile(path) as archive:
            found = _COMMENT.fullmatch(archive.comment)
            if found is None:
                raise _damaged(path, "it does not end with the mark of one")
            if int(found[1]) != FORMAT:
                raise StorageError(
                    f"{path} has format {int(found[1])}; this version of lowerbound "
                    f"({__version__}) reads format {FORMAT}.\n"
                    "Update lowerbound to read it."
                )
            members = _members(path, archive)
    except StorageError:
        raise
    except FileNotFoundError as error:
        raise StorageError(
            f"There is no file {path}.\nExpected a file that fit.save wrote."
        ) from error
    except (zipfile.BadZipFile, *_ZIP_ERRORS) as error:
        raise _damaged(path, str(error)) from error
    except OSError as error:
        raise StorageError(f"Cannot read {path}: {error.strerror or error}.") from error
    text = members.pop(_TEXT)
    if hashlib.sha256(text).hexdigest().encode() != found[2]:
        raise _damaged(path, f"{_TEXT} was changed")
    try:
        encoded = json.loads(text)
        digests = encoded.pop("arrays")
        if digests != {n: hashlib.sha256(content).hexdigest() for n, content in members.items()}:
            raise ValueError("its arrays were changed")
        arrays = {name: _array(name, content) for name, content in members.items()}
        with jax.enable_x64(True):
            document: dict[str, Any] = _decode({"dict": encoded}, arrays)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise _damaged(path, str(error)) from error
    return document


def _members(path: str | os.PathLike[str], archive: zipfile.ZipFile) -> dict[str, bytes]:
    """The contents of the members; nothing is ever unpacked to disk."""
    infos = archive.infolist()
    names = [info.filename for info in infos]
    if _TEXT not in names:
        raise _damaged(path, f"it has no {_TEXT}")
    if len(set(names)) != len(names):
        raise _damaged(path, "it has two members of one name")
    for info in infos:
        if info.filename != _TEXT and not _ARRAY_NAME.fullmatch(info.filename):
            raise _damaged(path, f"it has a member {info.filename!r} that no fit has")
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            raise _damaged(path, f"its member {info.filename!r} is compressed or encrypted")
    return {info.filename: archive.read(info) for info in infos}


def _damaged(path: str | os.PathLike[str], why: str) -> StorageError:
    return StorageError(
        f"{path} is damaged or is no fit of lowerbound: {why}.\n"
        "Expected a file that fit.save wrote, unchanged. Copy it again, or fit and save again."
    )


# --------------------------------------------------------------------------------------------------
# Values as JSON: plain ones as they are; {"tuple": [...]}, {"dict": {...}}, {"float": "inf"};
# {"array": name, "as": "numpy" | "jax" | "scalar"} for an array member.


class _NotPlainError(TypeError):
    """A value is neither an array nor JSON."""


def _encode(value: Any, arrays: list[np.ndarray]) -> Any:
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if type(value) is list:
        return [_encode(item, arrays) for item in value]
    if type(value) is tuple:
        return {"tuple": [_encode(item, arrays) for item in value]}
    if type(value) is dict and all(type(key) is str for key in value):
        return {"dict": {key: _encode(item, arrays) for key, item in value.items()}}
    kind = {np.ndarray: "numpy"}.get(type(value))
    kind = "jax" if isinstance(value, jax.Array) else kind
    kind = "scalar" if isinstance(value, np.generic) else kind
    if kind and not jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        array = np.asarray(value, order="C")
        if array.dtype.kind in _KINDS:
            arrays.append(array)
            return {"array": f"arrays/{len(arrays) - 1}.npy", "as": kind}
    raise _NotPlainError(f"a value of type {type(value).__name__} is neither an array nor JSON")


def _decode(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_decode(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        array = arrays[value["array"]]
        made: Mapping[str, Callable[[np.ndarray], Any]] = {
            "numpy": lambda a: a,
            "jax": jnp.asarray,
            "scalar": lambda a: a[()],
        }
        return made[value["as"]](array)
    ((tag, content),) = value.items()
    if tag == "tuple":
        return tuple(_decode(item, arrays) for item in content)
    if tag == "dict":
        return {key: _decode(item, arrays) for key, item in content.items()}
    if tag == "float":
        return float(content)
    raise ValueError(f"it has an unknown tag {tag!r}")


def _npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _array(name: str, content: bytes) -> np.ndarray:
    """The array of a `.npy` member, after its header is checked against its size."""
    buffer = io.BytesIO(content)
    if np.lib.format.read_magic(buffer) != (1, 0):
        raise ValueError(f"{name} is no array")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(buffer)
    if dtype.kind not in _KINDS or fortran:
        raise ValueError(f"{name} holds {dtype} values, which no fit has")
    body = content[buffer.tell() :]
    if len(body) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{name} has {len(body)} bytes for shape {shape}")
    return np.frombuffer(body, dtype).reshape(shape).copy()
