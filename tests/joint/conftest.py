"""Derivations run in double precision, as they do inside every public entry point."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield
