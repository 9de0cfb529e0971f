"""Programs without a screen or a person: plots, progress bars, `display`, versions."""

from __future__ import annotations

import builtins
import contextlib
import os
import re
from typing import Any


def hush(text: str) -> None:
    """Draw to nowhere, show no bars, ask no one."""
    os.environ.update(MPLBACKEND="Agg", TQDM_DISABLE="1", GIT_TERMINAL_PROMPT="0")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    builtins.display = lambda *_, **__: None  # type: ignore[attr-defined]
    builtins.input = lambda *_: ""
    as_written()
    if re.search("matplotlib|seaborn|arviz|pyplot", text):
        with_figures()


def with_figures() -> None:
    """Close what is shown, and save no figure."""
    import matplotlib.pyplot as plt
    from matplotlib.figure import Figure

    plt.show = lambda *_, **__: plt.close("all")
    plt.savefig = lambda *_, **__: None
    plt.tight_layout = lambda *_, **__: None
    Figure.savefig = lambda *_, **__: None  # type: ignore[method-assign]
    Figure.tight_layout = lambda *_, **__: None  # type: ignore[method-assign]


class AnyVersion(str):
    """A version that is the one asked for."""

    def startswith(self, *_: Any) -> bool:
        """Yes."""
        return True


def as_written() -> None:
    """What programs assume of the machine and of the packages of their day."""
    import numpyro
    import pandas as pd

    with contextlib.suppress(ImportError):
        import IPython.display

        IPython.display.set_matplotlib_formats = lambda *_, **__: None  # it has moved
    numpyro.__version__ = AnyVersion(numpyro.__version__)
    numpyro.set_platform = lambda *_, **__: None  # the one that there is
    pd.options.future.infer_string = False  # text is of type object, as it was
