"""What regressors and classifiers are to scikit-learn: targets, scores and tags."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from lowerbound.errors import ArgumentError
from lowerbound.estimators.programmed import Programmed


class Supervised(Programmed, ABC):
    """An estimator that predicts y."""

    @abstractmethod
    def predict(self, X: Any) -> np.ndarray:
        """The prediction for each row."""

    def _both(
        self, X: Any, y: Any, *, reset: bool = True, **rules: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """X and a vector y, checked together."""
        from sklearn.utils.validation import column_or_1d

        if y is None:
            raise ArgumentError(
                f"{type(self).__name__} requires y to be passed, but the target y is None.\n"
                "Expected fit(X, y)."
            )
        rules = {"ensure_min_samples": 2 if reset else 1, "multi_output": True, **rules}
        X, y = self._read(X, reset=reset, y=y, **rules)
        return X, column_or_1d(y, warn=True)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


class Regressor(Supervised):
    """y is a number."""

    def score(self, X: Any, y: Any) -> float:
        """R squared, the share of the variance of y that `predict` explains."""
        from sklearn.metrics import r2_score

        return float(r2_score(y, self.predict(X)))

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import RegressorTags

        tags = super().__sklearn_tags__()
        tags.estimator_type = "regressor"
        tags.regressor_tags = RegressorTags()
        return tags


class Classifier(Supervised):
    """y is a class."""

    binary: ClassVar[bool] = False  # whether there may be two classes alone
    classes_: np.ndarray

    @abstractmethod
    def predict_proba(self, X: Any) -> np.ndarray:
        """The predictive probabilities of the classes, (n, classes)."""

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        most = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[most])

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """The logarithms of `predict_proba`."""
        return np.asarray(np.log(self.predict_proba(X)))

    def score(self, X: Any, y: Any) -> float:
        """The share of rows whose class is predicted."""
        return float(np.mean(self.predict(X) == np.asarray(y)))

    def _coded(self, y: np.ndarray) -> np.ndarray:
        """The classes as 0, 1, ...; there must be two of them at least."""
        from sklearn.utils.multiclass import check_classification_targets

        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ArgumentError(
                f"{type(self).__name__} got y with one class, {classes[0]!r}.\n"
                "Expected at least two classes."
            )
        if self.binary and len(classes) > 2:
            raise ArgumentError(
                "Only binary classification is supported: "
                f"{type(self).__name__} got y with {len(classes)} classes.\nExpected two."
            )
        self.classes_ = classes
        return codes

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags

        tags = super().__sklearn_tags__()
        tags.estimator_type = "classifier"
        tags.classifier_tags = ClassifierTags(multi_class=not self.binary)
        return tags
