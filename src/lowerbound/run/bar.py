"""A progress bar on a terminal; silence elsewhere."""

from __future__ import annotations

import sys
from typing import Any


class Bar:
    """Shows how far a run is, and its latest value; `show=None` shows it on a terminal only."""

    def __init__(self, show: bool | None, total: int, title: str, unit: str) -> None:
        self.show = sys.stderr.isatty() if show is None else show
        self.total, self.title, self.unit = total, title, unit
        self.bar: Any = None

    def __enter__(self) -> Bar:
        if self.show:
            from tqdm.auto import tqdm

            self.bar = tqdm(total=self.total, desc=self.title, unit=self.unit, leave=False)
        return self

    def update(self, done: int, text: str = "") -> None:
        """Move to `done` units of the total."""
        if self.bar is not None and done > self.bar.n:
            self.bar.set_postfix_str(text)
            self.bar.update(done - self.bar.n)

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()
