"""Checkpoints: exact round trips, clear refusals, and a last good one that always survives."""

import os
import re
import subprocess
import zipfile
from pathlib import Path

import jax
import numpy as np
import pytest

import lowerbound as lb
from lowerbound.errors import ArgumentError, StorageError
from lowerbound.store.checkpoint import Checkpoint, Keeper, as_checkpoint, available, read

resource = pytest.importorskip("resource")

DOCUMENT = {
    "array": np.arange(6.0).reshape(2, 3),
    "pair": (1, {"nan": float("nan"), "text": "a", "none": None}),
    "flags": [True, np.float32(2.5)],
}


def keeper(path, every=10, **more):
    keep = Keeper(Checkpoint(path, every), **more)
    keep.prepare()
    return keep


def names(path):
    return sorted(p.name for p in Path(path).iterdir())


def refused(text, function, *args, **kwargs):
    """The whole text of the error."""
    with pytest.raises(StorageError) as caught:
        function(*args, **kwargs)
    assert str(caught.value) == text


# --- The setting ---


def test_settings():
    assert as_checkpoint(None) is None
    assert as_checkpoint("run") == Checkpoint("run", every=100)
    assert as_checkpoint(Path("run")) == Checkpoint(Path("run"))
    assert as_checkpoint(Checkpoint("run", 3)) == lb.Checkpoint("run", every=3)


@pytest.mark.parametrize("every", [0, -1, 2.5, True, "often"])
def test_settings_are_checked(every):
    with pytest.raises(ArgumentError) as caught:
        Checkpoint("run", every)
    assert str(caught.value) == (
        f"Checkpoint got every={every!r}.\nExpected an integer of at least 1: the number of steps "
        "of SVI, or of sweeps of CAVI, between two checkpoints."
    )


def test_folders_are_checked():
    for folder in ("", 3):
        with pytest.raises(ArgumentError) as caught:
            Checkpoint(folder)
        text = f"Checkpoint got directory={folder!r}.\nExpected the name of a folder."
        assert str(caught.value) == text
    with pytest.raises(ArgumentError) as caught:
        as_checkpoint(3)
    assert str(caught.value) == (
        "fit got checkpoint=3.\nExpected the name of a folder, or "
        'lb.Checkpoint("folder", every=100).'
    )


@pytest.mark.parametrize(("step", "due"), [(0, 10), (9, 10), (10, 20), (11, 20)])
def test_when_the_next_one_is_due(step, due):
    assert Keeper(Checkpoint("run", 10)).next(step) == due


# --- Files ---


def test_round_trip(tmp_path):
    keep = keeper(tmp_path / "a" / "run", record={"seed": 3})
    keep.write(120, DOCUMENT)
    assert names(keep.directory) == ["step-0000000120.process-0-of-1.lb"]
    assert available(keep.directory) == (120,)
    document = read(keep.directory, 120)
    assert document["run"] == {"seed": 3}
    found = document["progress"]
    np.testing.assert_array_equal(found["array"], DOCUMENT["array"])
    assert repr(found["pair"]) == repr(DOCUMENT["pair"])
    assert found["flags"] == DOCUMENT["flags"]
    assert found["flags"][1].dtype == np.float32


def test_files_hold_arrays_and_json_only(tmp_path):
    keep = keeper(tmp_path)
    keep.write(1, DOCUMENT)
    with zipfile.ZipFile(tmp_path / names(tmp_path)[0]) as archive:
        members = archive.namelist()
    assert sorted(members) == ["arrays/0.npy", "arrays/1.npy", "checkpoint.json"]
    with pytest.raises(TypeError, match="neither an array nor JSON"):
        keep.write(2, {"code": print})
    assert available(tmp_path) == (1,)


def test_the_last_two_are_kept(tmp_path):
    keep = keeper(tmp_path)
    for step in (10, 20, 30, 40):
        keep.write(step, {})
    assert available(tmp_path) == (30, 40)


def test_processes_keep_their_own(tmp_path):
    first, second = (Keeper(Checkpoint(tmp_path), p, 2) for p in (0, 1))
    for step in (10, 20, 30):
        first.write(step, {"who": 0})
    second.write(20, {"who": 1})
    assert available(tmp_path, 0, 2) == (20, 30)
    assert available(tmp_path, 1, 2) == (20,)
    assert available(tmp_path) == ()
    assert read(tmp_path, 20, 1, 2)["progress"] == {"who": 1}


def test_damaged_files_are_passed_over(tmp_path):
    keep = keeper(tmp_path)
    keep.write(10, DOCUMENT)
    keep.write(20, DOCUMENT)
    older, newer = (tmp_path / name for name in names(tmp_path))
    whole = newer.read_bytes()
    for content in (b"", whole[:-1], whole[: len(whole) // 2], b"x" * 100):
        newer.write_bytes(content)
        assert available(tmp_path) == (10,)
    newer.write_bytes(older.read_bytes())  # a checkpoint under the name of another step
    assert available(tmp_path) == (10,)
    keep.write(15, DOCUMENT)  # what comes after it is the damaged end of another life
    assert available(tmp_path) == (10, 15)
    assert len(names(tmp_path)) == 2


def test_what_a_kill_left_is_removed(tmp_path):
    keep = keeper(tmp_path)
    left = tmp_path / ".step-0000000010.process-0-of-1.lb.01234567.tmp"
    other = tmp_path / ".step-0000000010.process-1-of-2.lb.01234567.tmp"
    for path in (left, other):
        path.write_bytes(b"half")
    keep.write(20, {})
    assert names(tmp_path) == [other.name, "step-0000000020.process-0-of-1.lb"]


# --- Folders ---


def test_a_folder_that_holds_a_run(tmp_path):
    keeper(tmp_path).write(30, {})
    refused(
        f"{tmp_path} already holds checkpoints, the last of step 30.\nExpected an empty folder. Go "
        f"on with that run by lb.resume('{tmp_path}', model, ...), or name another folder.",
        keeper,
        str(tmp_path),
    )
    Keeper(Checkpoint(tmp_path)).prepare(resumed=True)


@pytest.mark.parametrize(
    ("inside", "reason"), [("", "File exists"), ("run", "Not a directory")], ids=["file", "below"]
)
def test_a_file_in_place_of_the_folder(inside, reason, tmp_path):
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / inside if inside else tmp_path / "file"
    refused(
        f"Cannot write checkpoints to {folder}: {reason}.\n"
        "Expected the name of a folder, existing or new, that you may write to.",
        keeper,
        folder,
    )


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs a folder nobody may write to")
def test_a_folder_that_cannot_be_written():
    for folder in ("/proc/self", "/proc/self/run"):
        with pytest.raises(StorageError, match=f"^Cannot write checkpoints to {folder}: "):
            keeper(folder)


def full_text(folder, step, reason):
    return (
        f"Cannot write the checkpoint of step {step} to {folder}: {reason}.\n"
        "Earlier checkpoints are intact. Make room or mend the folder, then go on by "
        f"lb.resume('{folder}', model, ...)."
    )


def test_a_file_that_cannot_grow(tmp_path):
    """The limit of the process on the size of files is met in the middle of a write."""
    keep = keeper(tmp_path)
    keep.write(10, DOCUMENT)
    before = names(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, hard))
    try:
        with pytest.raises(StorageError) as caught:
            keep.write(20, {"large": np.zeros(2**16)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(caught.value) == full_text(tmp_path, 20, "File too large")
    assert names(tmp_path) == before
    assert available(tmp_path) == (10,)


@pytest.fixture
def small_disk(tmp_path):
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(tmp_path)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("may not mount a small disk")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_full_disk(small_disk):
    keep = keeper(small_disk)
    keep.write(10, DOCUMENT)
    for _ in range(2):
        refused(
            full_text(small_disk, 20, "No space left on device"),
            keep.write,
            20,
            {"large": np.zeros(2**16)},
        )
        assert available(small_disk) == (10,)
        assert len(names(small_disk)) == 1
    keep.write(20, DOCUMENT)  # there is room again
    assert available(small_disk) == (10, 20)


@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_a_failed_write_leaves_the_last(name, tmp_path, monkeypatch):
    keep = keeper(tmp_path)
    keep.write(10, DOCUMENT)

    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, name, fails)
        with pytest.raises(StorageError, match=re.escape("step 20") + ".*Input/output error"):
            keep.write(20, DOCUMENT)
    assert available(tmp_path) == (10,)
    assert len(names(tmp_path)) == 1


def test_keys_are_no_plain_values(tmp_path):
    """A random key has to be written as its data."""
    with pytest.raises(TypeError, match="neither an array nor JSON"):
        keeper(tmp_path).write(1, {"key": jax.random.key(0)})
