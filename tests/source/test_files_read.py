"""Which files a path stands for."""

from __future__ import annotations

import pytest

from lowerbound.errors import CorpusFileError, StreamError
from lowerbound.source.files_read import file_paths


def test_files_of_folders_at_any_depth_by_name(tmp_path):
    inner = tmp_path / "2024.parquet"  # a folder that is called like a file
    inner.mkdir()
    for name in ("b.parquet", "a.parquet", "notes.txt", "2024.parquet/c.parquet"):
        (tmp_path / name).touch()
    found = file_paths(tmp_path, (".parquet",), StreamError)
    assert [str(path.relative_to(tmp_path)) for path in found] == [
        "2024.parquet/c.parquet",
        "a.parquet",
        "b.parquet",
    ]
    listed = [tmp_path / "b.parquet", str(tmp_path / "notes.txt")]
    assert [path.name for path in file_paths(listed, (".parquet",), StreamError)] == [
        "b.parquet",
        "notes.txt",  # what is named itself is read, whatever it is called
    ]


@pytest.mark.parametrize("error", [StreamError, CorpusFileError])
def test_paths_that_lead_nowhere(tmp_path, error):
    with pytest.raises(error) as raised:
        file_paths(tmp_path, (".npz",), error)
    assert str(raised.value).startswith(f"The folder {tmp_path} holds no file named *.")
    assert raised.value.path == str(tmp_path)
    with pytest.raises(error, match="There is no file or folder"):
        file_paths([tmp_path / "rows.npz"], (".npz",), error)
