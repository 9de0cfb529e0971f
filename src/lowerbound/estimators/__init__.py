"""Models in the form of scikit-learn estimators: models, not inference.

In: data in the forms that scikit-learn takes. Out: fitted attributes with a trailing underscore,
and `result_`, the `Fit` behind them.
"""

from lowerbound.estimators.lda import LatentDirichletAllocation
from lowerbound.estimators.lda_settings import Inference

__all__ = ["Inference", "LatentDirichletAllocation"]
