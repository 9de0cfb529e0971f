"""scikit-learn's contract for estimators, met without importing it."""

from __future__ import annotations

import inspect
import reprlib
from typing import Any, Self

from lowerbound.errors import ArgumentError

LONGEST = 60  # characters of a value in a repr
_repr = reprlib.Repr()
_repr.maxother = LONGEST


class Estimator:
    """Settings are the arguments of the constructor, kept as they were given.

    A subclass states them as the fields of a dataclass and checks them in `fit`, so that `clone`,
    `Pipeline` and `GridSearchCV` can copy and change them.
    """

    @classmethod
    def _names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings by name."""
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **params: Any) -> Self:
        """Change settings; a name that is none is an error."""
        for name, value in params.items():
            if name not in self._names():
                raise ArgumentError(
                    f"{type(self).__name__} has no setting '{name}'.\n"
                    f"Expected one of {', '.join(self._names())}."
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        changed = [
            f"{name}={_short(value)}"
            for name, value in self.get_params().items()
            if not _same(value, defaults[name].default)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_is_fitted__(self) -> bool:
        return any(name.endswith("_") and not name.startswith("_") for name in vars(self))

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags() if hasattr(self, "transform") else None,
            input_tags=InputTags(),
        )


def _short(value: Any) -> str:
    """A value on one line, with the middle of a long one left out."""
    text = " ".join(_repr.repr(value).split())
    return text if len(text) <= LONGEST else f"{text[:40]}...{text[-10:]}"


def _same(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, int | float | str) and value == default)
