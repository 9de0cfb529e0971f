"""A network of made files: what a program would download is made here, by the file's name.

Whatever opens an address does so through `urllib.request.urlopen` (pandas and NumPyro's data sets
as well), which is replaced. A file that no one makes is an error that names it.
"""

from __future__ import annotations

import io
import os
import urllib.request
from collections.abc import Callable
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlparse

from benchmarks.programs.made import arrays, tables, texts

MAKERS: dict[str, Callable[[], bytes]] = arrays.MAKERS | tables.MAKERS | texts.MAKERS


class Response(io.BytesIO):
    """Bytes as an HTTP response."""

    status = code = 200

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.headers = Message()
        self.headers["Content-Length"] = str(len(content))

    def info(self) -> Message:
        """The headers."""
        return self.headers


def urlopen(url: Any, *_: Any, **__: Any) -> Response:
    """The made file of an address: by the end of its path, or by path and query."""
    address = urlparse(url if isinstance(url, str) else url.full_url)
    for name in (os.path.basename(address.path), f"{address.path}?{address.query}"):
        if name in MAKERS:
            return Response(MAKERS[name]())
    raise URLError(f"no file is made for {address.geturl()}")


def serve(folder: Path, text: str) -> None:
    """Replace the network; NumPyro's data sets are kept in the folder."""
    urllib.request.urlopen = urlopen  # type: ignore[assignment]
    from numpyro.examples import datasets

    datasets.urlopen = urlopen
    datasets.DATA_DIR = str(folder / "data-sets")
    os.makedirs(datasets.DATA_DIR, exist_ok=True)
    if "sklearn.datasets" in text:
        texts.serve()
