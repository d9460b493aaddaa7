"""Ray Data and Ray Serve: a model as an actor. Install with `pip install delegraph[ray]`.

    import ray
    from delegraph.ray import Predictor

    rows = ray.data.from_numpy(images).map_batches(
        Predictor, fn_constructor_kwargs={"model": "model.tflite", "column": "data"}, batch_size=64,
        compute=ray.data.ActorPoolStrategy(size=2))

An actor holds one prepared interpreter. `ray.serve.deployment(Predictor).bind("model.tflite")` is a deployment whose handle takes
batches.
"""

from __future__ import annotations

from typing import Any

import ray

from .batches import BatchPredictor

__all__ = ["Predictor"]


class Predictor(BatchPredictor):
    """As `delegraph.batches.BatchPredictor`; the model may also be a reference to a Ray object, which all workers of a
    machine read from shared memory."""

    def __init__(self, model: Any, **options: Any) -> None:
        if isinstance(model, ray.ObjectRef):  # pyright: ignore[reportAttributeAccessIssue]
            model = ray.get(model)  # pyright: ignore[reportAttributeAccessIssue]
        super().__init__(model, **options)
