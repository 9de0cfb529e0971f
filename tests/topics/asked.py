"""Estimators of topics from flat settings: those of the inference go to their value."""

from dataclasses import fields
from typing import Any

from lowerbound.estimators import Inference, LatentDirichletAllocation

OF_INFERENCE = {field.name for field in fields(Inference)} - {"kind"}


def asked(n_components: int, **settings: Any) -> LatentDirichletAllocation:
    """An estimator; `inference` is the kind."""
    held = {name: settings.pop(name) for name in OF_INFERENCE & {*settings}}
    inference = Inference(settings.pop("inference", "auto"), **held)
    return LatentDirichletAllocation(n_components, inference=inference, **settings)
