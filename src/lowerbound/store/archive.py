"""Files of arrays and plain values: one zip of `.npy` members and one JSON text.

The members are stored, not compressed, and named in the JSON with their SHA-256; the comment of the
zip holds the kind of file, its format and the SHA-256 of the JSON. NumPy reads the arrays of a file
as those of any `.npz`. Reading can run no code.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import secrets
import struct
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.errors import NotPlainError, StorageError
from lowerbound.version import __version__

_ARRAY_NAME = re.compile(r"arrays/\d{1,6}\.npy")
_KINDS = "biufcU"  # dtypes that are written: no objects, which would need pickle
# What zipfile raises on bytes that are no zip, besides BadZipFile.
_ZIP_ERRORS = (EOFError, NotImplementedError, RuntimeError, ValueError, OverflowError, struct.error)


@dataclass(frozen=True)
class Kind:
    """A kind of file: its name and format, what writes it, and what to do when it is damaged."""

    name: str
    format: int
    writer: str
    advice: str

    @property
    def text(self) -> str:
        """The name of the JSON member."""
        return f"{self.name}.json"

    def comment(self, digest: str) -> bytes:
        """The mark at the end of a file."""
        return f"lowerbound {self.name}; format {self.format}; sha256 {digest}".encode()

    def damaged(self, path: str | os.PathLike[str], why: str) -> StorageError:
        """The error for a file that cannot be what it should be."""
        return StorageError(
            f"{path} is damaged or is no {self.name} of lowerbound: {why}.\n"
            f"Expected a file that {self.writer} wrote, unchanged. {self.advice}"
        )


# --------------------------------------------------------------------------------------------------
# Write


def write_archive(path: str | os.PathLike[str], document: dict[str, Any], kind: Kind) -> None:
    """Write a document to one file, at once or not at all."""
    arrays: list[np.ndarray] = []
    encoded = _encode(document, arrays)["dict"]
    members = {f"arrays/{i}.npy": _npy(array) for i, array in enumerate(arrays)}
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in members.items()}
    text = json.dumps({"arrays": digests, **encoded}, allow_nan=False, indent=1).encode()
    comment = kind.comment(hashlib.sha256(text).hexdigest())
    _write(Path(path), {kind.text: text, **members}, comment)


def check_plain(value: Any) -> None:
    """Raises NotPlainError unless the value can be part of a document."""
    _encode(value, [])


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
        _sync_folder(target.parent)
    except OSError as error:
        raise StorageError(
            f"Cannot write {path}: {error.strerror or error}.\n"
            "Expected the name of a file in an existing folder that you may write to."
        ) from error


def _sync_folder(folder: Path) -> None:
    """Make a new name in a folder survive a loss of power, where folders can be synchronised."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --------------------------------------------------------------------------------------------------
# Read


def read_archive(path: str | os.PathLike[str], kind: Kind) -> dict[str, Any]:
    """The document in a file, after every check that needs no knowledge of its content."""
    mark = re.compile(
        rb"lowerbound %s; format (\d{1,9}); sha256 ([0-9a-f]{64})" % kind.name.encode()
    )
    try:
        with zipfile.ZipFile(path) as archive:
            found = mark.fullmatch(archive.comment)
            if found is None:
                raise kind.damaged(path, "it does not end with the mark of one")
            if int(found[1]) != kind.format:
                raise StorageError(
                    f"{path} has format {int(found[1])}; this version of lowerbound "
                    f"({__version__}) reads format {kind.format}.\n"
                    "Update lowerbound to read it."
                )
            members = _members(path, archive, kind)
    except StorageError:
        raise
    except FileNotFoundError as error:
        raise StorageError(
            f"There is no file {path}.\nExpected a file that {kind.writer} wrote."
        ) from error
    except (zipfile.BadZipFile, *_ZIP_ERRORS) as error:
        raise kind.damaged(path, str(error)) from error
    except OSError as error:
        raise StorageError(f"Cannot read {path}: {error.strerror or error}.") from error
    text = members.pop(kind.text)
    if hashlib.sha256(text).hexdigest().encode() != found[2]:
        raise kind.damaged(path, f"{kind.text} was changed")
    try:
        encoded = json.loads(text)
        digests = encoded.pop("arrays")
        if digests != {n: hashlib.sha256(content).hexdigest() for n, content in members.items()}:
            raise ValueError("its arrays were changed")
        arrays = {name: _array(name, content, kind) for name, content in members.items()}
        with jax.enable_x64(True):
            document: dict[str, Any] = _decode({"dict": encoded}, arrays)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise kind.damaged(path, str(error)) from error
    return document


def _members(
    path: str | os.PathLike[str], archive: zipfile.ZipFile, kind: Kind
) -> dict[str, bytes]:
    """The contents of the members; nothing is ever unpacked to disk."""
    infos = archive.infolist()
    names = [info.filename for info in infos]
    if kind.text not in names:
        raise kind.damaged(path, f"it has no {kind.text}")
    if len(set(names)) != len(names):
        raise kind.damaged(path, "it has two members of one name")
    for info in infos:
        if info.filename != kind.text and not _ARRAY_NAME.fullmatch(info.filename):
            raise kind.damaged(path, f"it has a member {info.filename!r} that no {kind.name} has")
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            raise kind.damaged(path, f"its member {info.filename!r} is compressed or encrypted")
    return {info.filename: archive.read(info) for info in infos}


# --------------------------------------------------------------------------------------------------
# Values as JSON: plain ones as they are; {"tuple": [...]}, {"dict": {...}}, {"float": "inf"};
# {"array": name, "as": "numpy" | "jax" | "scalar"} for an array member.


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
    raise NotPlainError(f"a value of type {type(value).__name__} is neither an array nor JSON")


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


def _array(name: str, content: bytes, kind: Kind) -> np.ndarray:
    """The array of a `.npy` member, after its header is checked against its size."""
    buffer = io.BytesIO(content)
    if np.lib.format.read_magic(buffer) != (1, 0):
        raise ValueError(f"{name} is no array")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(buffer)
    if dtype.kind not in _KINDS or fortran:
        raise ValueError(f"{name} holds {dtype} values, which no {kind.name} has")
    body = content[buffer.tell() :]
    if len(body) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{name} has {len(body)} bytes for shape {shape}")
    return np.frombuffer(body, dtype).reshape(shape).copy()
