"""Apache Beam: a model handler for RunInference. Install with `pip install delegraph[beam]`.

    from apache_beam.ml.inference.base import RunInference
    from delegraph.beam import ModelHandler

    results = arrays | RunInference(ModelHandler("model.tflite"))
"""

from __future__ import annotations

from typing import Any, Iterable, Mapping, Optional, Sequence

from apache_beam.ml.inference import base

from .batches import BatchPredictor

__all__ = ["ModelHandler"]


class ModelHandler(base.ModelHandler):  # type: ignore[misc]
    """Runs a model on arrays, one per element and without the batch, and returns a `PredictionResult` for each.

    Args:
      model: a path, or the bytes of a file.
      batch_size: the minimum and maximum number of elements of a batch.
      **options: arguments of `delegraph.batches.BatchPredictor` and of `Interpreter`.

    The inference of an element that fails is a dictionary with the key `error`.
    """

    def __init__(self, model: Any, *, batch_size: tuple[int, int] = (1, 64), **options: Any) -> None:
        super().__init__()
        self._model, self._batch, self._options = model, batch_size, options

    def load_model(self) -> BatchPredictor:
        """Creates the interpreter of a worker."""
        return BatchPredictor(self._model, **{**self._options, "column": "input", "output": "output", "keep": False})

    def run_inference(
        self, batch: Sequence[Any], model: BatchPredictor, inference_args: Optional[Mapping[str, Any]] = None
    ) -> Iterable[base.PredictionResult]:
        """Runs a batch."""
        results = model({"input": list(batch)})
        errors = results.pop("error")
        columns = list(results.values())
        for i, example in enumerate(batch):
            values = [column[i] for column in columns]
            inference = {"error": errors[i]} if errors[i] else values[0] if len(values) == 1 else values
            yield base.PredictionResult(example, inference)

    def batch_elements_kwargs(self) -> Mapping[str, Any]:
        """The sizes of batches."""
        return {"min_batch_size": self._batch[0], "max_batch_size": self._batch[1]}
