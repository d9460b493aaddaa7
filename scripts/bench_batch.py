#!/usr/bin/env python3
"""Throughput of a model over many clips: a plain loop, Ray Data and Beam, with Delegraph and with LiteRT.

    bench_batch.py MODEL [--engine loop,ray,beam] [--runtime delegraph,litert] [--clips N] [--workers N] [--kill] [--broken]

Clips are sounds or images of random numbers, in files of the shape of the model's only input. Each worker is a process
that runs the model on one thread. Clips per second are measured from the start of the first batch to the end of the
last one, without the start of the engine. `--kill` ends one worker in the middle, `--broken` damages one file.
Afterwards every clip must have exactly one row. Run it in a virtual environment with the wheel, `ai-edge-litert`,
`ray[data]` and `apache-beam`; missing packages are skipped.
"""

import argparse
import importlib.util
import json
import multiprocessing
import os
import pathlib
import signal
import sys
import tempfile
import time
from typing import Any, Iterable

import numpy as np

BATCH = 16


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--engine", default="loop,ray,beam")
    parser.add_argument("--runtime", default="delegraph,litert")
    parser.add_argument("--clips", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--broken", action="store_true")
    options = parser.parse_args()
    model = os.path.abspath(options.model)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="clips") as folder:
        paths = write_clips(model, pathlib.Path(folder), options.clips)
        if options.broken:
            pathlib.Path(paths[len(paths) // 2]).write_bytes(b"no array")
        print("| engine | runtime | clips | rows | errors | clips/s | whole run (s) |\n|---|---|---|---|---|---|---|")
        for _ in range(options.rounds):
            for engine in options.engine.split(","):
                for runtime in options.runtime.split(","):
                    if missing := left_out(engine, runtime):
                        print(f"{engine}, {runtime}: left out: {missing} is not installed", file=sys.stderr)
                        continue
                    failed += not measure(engine, runtime, model, paths, options)
    return 1 if failed else 0


def left_out(engine: str, runtime: str) -> "str | None":
    needed = {"ray": "ray", "beam": "apache_beam", "litert": "ai_edge_litert", "delegraph": "delegraph"}
    names = (needed[name] for name in (engine, runtime) if name in needed)
    return next((name for name in names if importlib.util.find_spec(name) is None), None)


def measure(engine: str, runtime: str, model: str, paths: list, options: argparse.Namespace) -> bool:
    """Prints a row of the table. Returns whether every clip has exactly one row, and an error if its file is damaged."""
    start = time.perf_counter()
    rows = list({"loop": loop, "ray": ray_data, "beam": beam_pipeline}[engine](runtime, model, paths, options))
    whole = time.perf_counter() - start
    taken = max(row["end"] for row in rows) - min(row["start"] for row in rows)
    errors = [row for row in rows if row["error"]]
    once = sorted(row["path"] for row in rows) == sorted(paths)
    sums = {row["path"]: row["sum"] for row in rows if not row["error"]}
    print(f"| {engine} | {runtime} | {len(paths)} | {len(rows)} | {len(errors)} | {len(rows) / taken:.1f} | {whole:.1f} |", flush=True)
    if not once:
        print(f"{engine}, {runtime}: {len(set(row['path'] for row in rows))} different clips in {len(rows)} rows", file=sys.stderr)
    return once and len(errors) == int(options.broken) and all(np.isfinite(list(sums.values())))


def write_clips(model: str, folder: pathlib.Path, count: int) -> list:
    try:
        from delegraph import Interpreter
    except ImportError:
        from ai_edge_litert.interpreter import Interpreter

    (detail,) = Interpreter(model).get_input_details()
    random = np.random.default_rng(0)
    clip = (random.standard_normal(tuple(detail["shape"][1:])) * 0.1).astype(detail["dtype"])
    paths = [str(folder / f"{i:05}.npy") for i in range(count)]
    for i, path in enumerate(paths):
        np.save(path, np.roll(clip, i * 97))
    return paths


class LiteRTPredictor:
    """The batch function of a program with LiteRT: the same work as `delegraph.ray.Predictor`."""

    def __init__(self, model: str, column: str, read: Any) -> None:
        from ai_edge_litert.interpreter import Interpreter

        self.interpreter = Interpreter(model_path=model, num_threads=1)
        (self.input,), (self.output, *_) = self.interpreter.get_input_details(), self.interpreter.get_output_details()
        self.column, self.read, self.shape = column, read, None

    def __call__(self, batch: Any) -> dict:
        clips, errors, kept = [], [None] * len(batch[self.column]), []
        for i, path in enumerate(batch[self.column]):
            try:
                clips.append(self.read(path))
                kept.append(i)
            except Exception as error:  # noqa: BLE001
                errors[i] = str(error)
        array = np.stack(clips)
        if array.shape != self.shape:
            self.interpreter.resize_tensor_input(self.input["index"], array.shape)
            self.interpreter.allocate_tensors()
            self.shape = array.shape
        self.interpreter.set_tensor(self.input["index"], array)
        self.interpreter.invoke()
        result = self.interpreter.get_tensor(self.output["index"])
        output = np.full((len(errors), *result.shape[1:]), np.nan, np.float32)
        output[kept] = result
        return {**batch, "output": output, "error": np.array(errors, dtype=object)}


class Timed:
    """A predictor that records the start and end of each batch, and sums its outputs."""

    def __init__(self, runtime: str, model: Any) -> None:
        if runtime == "litert":
            self.predictor: Any = LiteRTPredictor(model, "path", np.load)
        else:
            from delegraph.batches import BatchPredictor

            self.predictor = BatchPredictor(model, column="path", read=np.load, num_threads=1)

    def __call__(self, batch: Any) -> dict:
        start = time.time()
        result = self.predictor(batch)
        output = next(value for name, value in result.items() if name in ("output", "output_0"))
        count = len(output)
        return {
            "path": np.asarray(batch["path"]),
            "sum": output.reshape(count, -1).sum(axis=1, dtype=np.float64),
            "error": result["error"],
            "start": np.full(count, start),
            "end": np.full(count, time.time()),
            "pid": np.full(count, os.getpid()),
        }


def rows_of(columns: dict) -> Iterable[dict]:
    return ({name: values[i] for name, values in columns.items()} for i in range(len(columns["path"])))


def work(runtime: str, model: str, paths: list, results: Any) -> None:
    timed = Timed(runtime, model)
    for at in range(0, len(paths), BATCH):
        results.put(timed({"path": np.array(paths[at : at + BATCH])}))
    results.put(None)


def loop(runtime: str, model: str, paths: list, options: argparse.Namespace) -> Iterable[dict]:
    """Workers that share the clips equally: the baseline of the engines."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    shares = [paths[i :: options.workers] for i in range(options.workers)]
    processes = [context.Process(target=work, args=(runtime, model, share, results)) for share in shares]
    for process in processes:
        process.start()
    rows: list = []
    ended = 0
    while ended < len(processes):
        columns = results.get()
        if columns is None:
            ended += 1
        else:
            rows += rows_of(columns)
    for process in processes:
        process.join()
    return rows


def ray_data(runtime: str, model: str, paths: list, options: argparse.Namespace) -> Iterable[dict]:
    import ray

    ray.init(num_cpus=options.workers, include_dashboard=False, logging_level="error", log_to_driver=False)
    try:
        ray.data.DataContext.get_current().enable_progress_bars = False
        data = ray.data.from_items([{"path": path} for path in paths], override_num_blocks=max(1, len(paths) // (4 * BATCH)))
        data = data.map_batches(
            Timed, fn_constructor_kwargs={"runtime": runtime, "model": model}, batch_size=BATCH,
            compute=ray.data.ActorPoolStrategy(size=options.workers)
        )
        rows, killed = [], not options.kill
        for row in data.iter_rows():
            rows.append(row)
            if not killed and len(rows) > len(paths) // 3:
                os.kill(int(row["pid"]), signal.SIGKILL)
                killed = True
        return rows
    finally:
        ray.shutdown()


def beam_pipeline(runtime: str, model: str, paths: list, options: argparse.Namespace) -> Iterable[dict]:
    import apache_beam as beam
    from apache_beam.ml.inference.base import ModelHandler, RunInference
    from apache_beam.options.pipeline_options import PipelineOptions

    class Handler(ModelHandler):
        def load_model(self) -> Timed:
            return Timed(runtime, model)

        def run_inference(self, batch: Any, model: Timed, inference_args: Any = None) -> Iterable[dict]:
            return list(rows_of(model({"path": np.array(batch)})))

        def batch_elements_kwargs(self) -> dict:
            return {"min_batch_size": BATCH, "max_batch_size": BATCH}

    with tempfile.TemporaryDirectory() as folder:
        flags = ["--runner=DirectRunner", f"--direct_num_workers={options.workers}", "--direct_running_mode=multi_processing"]
        with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
            rows = pipeline | beam.Create(paths) | beam.Reshuffle() | RunInference(Handler())
            text = rows | beam.Map(lambda row: json.dumps({k: v.item() if hasattr(v, "item") else v for k, v in row.items()}))
            text | beam.io.WriteToText(os.path.join(folder, "rows"))
        lines = [line for path in pathlib.Path(folder).glob("rows*") for line in path.read_text().splitlines()]
        return [json.loads(line) for line in lines]


if __name__ == "__main__":
    sys.exit(main())
