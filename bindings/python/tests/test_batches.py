"""Batches of records, with and without Ray and Beam."""

import pathlib

import numpy as np
import pytest

from delegraph import Interpreter
from delegraph.batches import BatchPredictor


def images(count: int) -> np.ndarray:
    return np.random.default_rng(0).random((count, 8, 8, 1), dtype=np.float32)


def folder_of_files(folder: pathlib.Path, count: int) -> list:
    paths = [folder / f"{i}.npy" for i in range(count)]
    for path, image in zip(paths, images(count)):
        np.save(path, image)
    paths[3].write_bytes(b"broken")
    return [str(path) for path in paths]


def test_a_broken_record_is_a_row(digits: str, tmp_path: pathlib.Path) -> None:
    files = folder_of_files(tmp_path, 10)
    wanted = Interpreter(digits).predict(images(10))
    result = BatchPredictor(digits, column="path", read=np.load)({"path": np.array(files), "id": np.arange(10)})
    assert list(result) == ["path", "id", "output", "error"] and result["id"].tolist() == list(range(10))
    good = [i for i in range(10) if i != 3]
    np.testing.assert_allclose(result["output"][good], wanted[good], atol=1e-6)
    assert [i for i, error in enumerate(result["error"]) if error] == [3]
    assert np.isnan(result["output"][3]).all()


def test_rows_of_wrong_shapes_and_types(digits: str) -> None:
    values = [np.zeros((8, 8, 1)), np.zeros((8, 8)), "text", np.zeros((8, 8, 1), complex), images(1)[0]]
    predictor = BatchPredictor(pathlib.Path(digits).read_bytes(), keep=False)
    result = predictor({"x": values})
    assert [bool(error) for error in result["error"]] == [False, True, True, True, False]
    assert list(result) == ["output", "error"] and result["output"].shape == (5, 10)
    assert predictor({"x": [None, None]})["output"].shape == (2, 10)
    for batch in ({"x": [1], "y": [1]}, {}):
        with pytest.raises(ValueError, match="columns"):
            predictor(batch)
    with pytest.raises(ValueError, match="named"):
        BatchPredictor(digits, column={"other": "x"})({"x": [1]})


def test_ray_data(digits: str, tmp_path: pathlib.Path) -> None:
    ray = pytest.importorskip("ray", reason="Ray is not installed (pip install delegraph[ray])")
    from delegraph.ray import Predictor

    files = folder_of_files(tmp_path, 40)
    ray.init(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)
    try:
        model = ray.put(pathlib.Path(digits).read_bytes())
        rows = ray.data.from_items([{"id": i, "path": path} for i, path in enumerate(files)]).map_batches(
            Predictor,
            fn_constructor_kwargs={"model": model, "column": "path", "read": np.load},
            batch_size=8,
            concurrency=2,
        ).take_all()
    finally:
        ray.shutdown()
    rows.sort(key=lambda row: row["id"])
    assert [row["id"] for row in rows] == list(range(40))
    assert [row["id"] for row in rows if row["error"]] == [3]
    wanted = Interpreter(digits).predict(images(40))
    for row in rows:
        if row["id"] != 3:
            np.testing.assert_allclose(row["output"], wanted[row["id"]], atol=1e-6)


def test_beam(digits: str) -> None:
    beam = pytest.importorskip("apache_beam", reason="Beam is not installed (pip install delegraph[beam])")
    from apache_beam.ml.inference.base import RunInference
    from apache_beam.testing.test_pipeline import TestPipeline
    from apache_beam.testing.util import assert_that
    from delegraph.beam import ModelHandler

    wanted = Interpreter(digits).predict(images(20))

    def check(results: list) -> None:
        assert len(results) == 21
        errors = [result for result in results if isinstance(result.inference, dict)]
        assert len(errors) == 1
        found = sorted(tuple(result.inference) for result in results if not isinstance(result.inference, dict))
        np.testing.assert_allclose(found, sorted(tuple(row) for row in wanted), atol=1e-5)

    with TestPipeline() as pipeline:
        results = pipeline | beam.Create([*images(20), np.zeros(3, np.float32)]) | RunInference(ModelHandler(digits))
        assert_that(results, check)
