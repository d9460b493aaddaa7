"""Runs batches of records through a model. A record that fails is a row with an error."""

from __future__ import annotations

import os
from typing import Any, Callable, Mapping, Optional, Sequence, Union

import numpy as np
from numpy.typing import NDArray

from .interpreter import Interpreter

Batch = dict[str, NDArray[Any]]


class BatchPredictor:
    """Runs a model on batches: dictionaries of columns, arrays of one length.

    Args:
      model: a path, or the bytes of a file.
      column: the column with the input; by default the only one. For several inputs, a dictionary from the names of inputs
        to columns.
      output: the column of the result; for several outputs, `output_0`, `output_1`, … in the model's order.
      error: the column with the message of a row that failed; `None` in rows that did not.
      read: converts a value of the column to the input, such as a file's path to an array. Its exceptions are errors of
        the row.
      keep: whether the other columns are part of the result.
      **options: arguments of `Interpreter`, such as `delegate="wgpu"` and `num_threads`.

    A row that fails has NaN (0 if the output is not float) in the columns of outputs. Rows keep their order and count.
    """

    def __init__(
        self,
        model: Union[str, "os.PathLike[str]", bytes],
        *,
        column: Union[str, Mapping[str, str], None] = None,
        output: str = "output",
        error: str = "error",
        read: Optional[Callable[[Any], Any]] = None,
        keep: bool = True,
        **options: Any,
    ) -> None:
        if isinstance(model, (bytes, bytearray, memoryview)):
            self._interpreter = Interpreter(model_content=bytes(model), **options)
        else:
            self._interpreter = Interpreter(model_path=model, **options)
        self._column, self._output, self._error = column, output, error
        self._read, self._keep = read, keep
        self._inputs = self._interpreter.get_input_details()
        self._outputs = self._interpreter.get_output_details()

    def __call__(self, batch: Mapping[str, Any]) -> Batch:
        """Returns the columns of the batch, those of the outputs, and the errors."""
        columns = self._columns(batch)
        count = len(columns[0])
        errors: list[Optional[str]] = [None] * count
        rows: list[Optional[list[NDArray[Any]]]] = [None] * count
        for i in range(count):
            try:
                rows[i] = [self._row(column[i], detail) for column, detail in zip(columns, self._inputs)]
            except Exception as error:  # noqa: BLE001 - any exception of a reader is the row's
                errors[i] = f"{type(error).__name__}: {error}"
        results = self._run(rows, errors)
        names = [self._output] if len(self._outputs) == 1 else [f"{self._output}_{i}" for i in range(len(self._outputs))]
        returned: Batch = {key: _column(value) for key, value in batch.items()} if self._keep else {}
        for name, detail, values in zip(names, self._outputs, results):
            returned[name] = _stacked(values, detail)
        returned[self._error] = np.array(errors, dtype=object)
        return returned

    def _columns(self, batch: Mapping[str, Any]) -> list[Any]:
        if isinstance(self._column, Mapping):
            missing = [d["name"] for d in self._inputs if d["name"] not in self._column]
            if missing:
                raise ValueError(f"no column is named for the inputs {missing}")
            names = [self._column[d["name"]] for d in self._inputs]
        elif self._column is not None:
            names = [self._column]
        else:
            names = list(batch)
        if len(names) != len(self._inputs) or any(name not in batch for name in names):
            count = len(self._inputs)
            inputs = "1 input" if count == 1 else f"{count} inputs"
            raise ValueError(f"the model has {inputs}; the batch has the columns {sorted(batch)}, used: {names}")
        return [batch[name] for name in names]

    def _row(self, value: Any, detail: Mapping[str, Any]) -> NDArray[Any]:
        """Returns one record in the form of the input, without the batch."""
        array = np.asarray(self._read(value) if self._read else value)
        if array.dtype == object:
            array = np.stack([np.asarray(part) for part in array])
        if detail["dtype"] is not np.bytes_:
            array = array.astype(detail["dtype"], casting="same_kind", copy=False)
        wanted = [int(dim) for dim in detail["shape_signature"][1:]]
        if len(wanted) != array.ndim or any(w not in (-1, d) for w, d in zip(wanted, array.shape)):
            raise ValueError(f"input {detail['name']} takes {wanted}, not {list(array.shape)}")
        return array

    def _run(self, rows: Sequence[Optional[list[NDArray[Any]]]], errors: list[Optional[str]]) -> list[list[Any]]:
        """Runs rows of equal shapes together. A group that fails is run row by row, so that only its faulty rows fail."""
        results: list[list[Any]] = [[None] * len(rows) for _ in self._outputs]
        groups: dict[Any, list[int]] = {}
        for i, row in enumerate(rows):
            if row is not None:
                groups.setdefault(tuple(array.shape for array in row), []).append(i)
        for members in groups.values():
            try:
                self._predict(rows, members, results)
            except Exception:  # noqa: BLE001
                for i in members:
                    try:
                        self._predict(rows, [i], results)
                    except Exception as error:  # noqa: BLE001
                        errors[i] = f"{type(error).__name__}: {error}"
        return results

    def _predict(self, rows: Sequence[Any], members: Sequence[int], results: list[list[Any]]) -> None:
        arrays = [np.stack([rows[i][k] for i in members]) for k in range(len(self._inputs))]
        outputs = self._interpreter.predict(arrays)
        outputs = outputs if isinstance(outputs, list) else [outputs]
        for column, output in zip(results, outputs):
            if len(output) != len(members):
                has = "1 row" if len(output) == 1 else f"{len(output)} rows"
                raise ValueError(f"an output has {has} for a batch of {len(members)}")
            for at, i in enumerate(members):
                column[i] = output[at]


def _column(values: Any) -> NDArray[Any]:
    """Returns a column as an array; values of different shapes are objects."""
    try:
        return np.asarray(values)
    except ValueError:
        column = np.empty(len(values), object)
        column[:] = list(values)
        return column


def _stacked(values: Sequence[Any], detail: Mapping[str, Any]) -> NDArray[Any]:
    """Returns the values of a column; rows without one are NaN or 0. Values of different shapes are objects."""
    known = [value for value in values if value is not None]
    shapes = {np.shape(value) for value in known}
    if len(shapes) > 1:
        column = np.empty(len(values), object)
        column[:] = list(values)
        return column
    shape = shapes.pop() if shapes else tuple(int(dim) for dim in detail["shape"][1:])
    kind = known[0].dtype if known else np.dtype(object if detail["dtype"] is np.bytes_ else detail["dtype"])
    filler = np.nan if kind.kind in "fc" else 0
    column = np.full((len(values), *shape), filler, kind)
    for i, value in enumerate(values):
        if value is not None:
            column[i] = value
    return column
