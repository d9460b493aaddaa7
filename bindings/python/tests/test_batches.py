"""Batches of records, with and without Ray and Beam."""

import os
import pathlib
import signal
import time

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
            compute=ray.data.ActorPoolStrategy(size=2),
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


def test_a_killed_worker_of_ray(digits: str) -> None:
    """Ray runs the batches of a dead actor again: every row occurs once."""
    ray = pytest.importorskip("ray", reason="Ray is not installed (pip install delegraph[ray])")
    from delegraph.ray import Predictor

    class Marked(Predictor):
        def __call__(self, batch: dict) -> dict:
            time.sleep(0.02)
            result = super().__call__(batch)
            return {**result, "pid": np.full(len(batch["id"]), os.getpid())}

    count = 1_000
    ray.init(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)
    try:
        data = images(count)
        rows = ray.data.from_items([{"id": i, "image": data[i]} for i in range(count)], override_num_blocks=50).map_batches(
            Marked, fn_constructor_kwargs={"model": digits, "column": "image"}, batch_size=8, compute=ray.data.ActorPoolStrategy(size=2)
        )
        seen: list = []
        killed = False
        for row in rows.iter_rows():
            seen.append(row)
            if len(seen) == count // 4 and not killed:
                os.kill(int(row["pid"]), signal.SIGKILL)
                killed = True
    finally:
        ray.shutdown()
    assert killed and sorted(row["id"] for row in seen) == list(range(count))
    wanted = Interpreter(digits).predict(data)
    for row in seen:
        assert row["error"] is None
        np.testing.assert_allclose(row["output"], wanted[row["id"]], atol=1e-6)


def test_ray_serve(digits: str) -> None:
    ray = pytest.importorskip("ray", reason="Ray is not installed (pip install delegraph[ray])")
    serve = pytest.importorskip("ray.serve", reason="Ray Serve is not installed (pip install delegraph[serve])", exc_type=ImportError)
    from delegraph.ray import Predictor

    ray.init(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)
    try:
        serve.start(proxy_location="Disabled")  # Without an HTTP port.
        handle = serve.run(serve.deployment(Predictor).bind(digits, column="image"))
        batches = [images(count) for count in (1, 3, 5)]
        results = [response.result() for response in [handle.remote({"image": batch}) for batch in batches]]
        for batch, result in zip(batches, results):
            np.testing.assert_allclose(result["output"], Interpreter(digits).predict(batch), atol=1e-6)
        broken = handle.remote({"image": [np.zeros(3), images(1)[0]]}).result()
        assert [bool(error) for error in broken["error"]] == [True, False]
    finally:
        serve.shutdown()
        ray.shutdown()


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
