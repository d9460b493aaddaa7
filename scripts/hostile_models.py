#!/usr/bin/env python3
"""Make valid model files that attack the runtime, run the command on each, and list those that it does not contain.

    target/venvs/goldens/bin/python scripts/hostile_models.py --program target/debug/delegraph [--only REGEX] [--plain [--seconds N]]

More than 800 models of the kinds of tests/hostile: results far above the limits, shapes without elements and with huge dimensions, extreme
params, indices and quantization, calls, loops and composites in circles and in depth, variables, tables, strings, sparse tensors,
signatures, FlexBuffers. Each runs on --on (cpu, reference, wgpu) with `--max-memory 1G --timeout 8`. A finding is a signal, a panic, an
exit code that the command does not document, more than 10 seconds of processor time, more than 2 GiB of resident memory, or a control
character on standard error. With --plain there are no limits, and only the first three are findings; a run is ended after --seconds,
since nothing else ends endless work. Files go to --folder.
"""
import argparse
import math
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time

import flatbuffers
import flatbuffers.flexbuffers as flexbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

OP, OPTIONS, TYPE = schema.BuiltinOperator, schema.BuiltinOptions, schema.TensorType
OPTIONS2 = schema.BuiltinOptions2
F32, I32, I8, BOOL, I64, STRING, RESOURCE = (TYPE.FLOAT32, TYPE.INT32, TYPE.INT8, TYPE.BOOL, TYPE.INT64, TYPE.STRING, TYPE.RESOURCE)
MAX_I32 = 2**31 - 1
SECONDS, BYTES = 10, 2 << 30


def i32(*values):
    return np.array(values, np.int32).tobytes()


def f32(*values):
    return np.array(values, np.float32).tobytes()


def strings(*values):
    ends = np.cumsum([4 * (len(values) + 2)] + [len(value) for value in values])
    return i32(len(values), *ends) + b"".join(values)


def make(table, **fields):
    made = getattr(schema, table + "T")()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


class Graph:
    """A subgraph under construction. Buffers and op codes are those of the model."""

    def __init__(self, model, name="main"):
        self.model, self.made = model, make("SubGraph", name=name, tensors=[], inputs=[], outputs=[], operators=[])
        model.graphs.append(self.made)

    def tensor(self, shape, ty=F32, data=None, quantization=None, **fields):
        buffer = 0
        if data is not None:
            self.model.buffers.append(make("Buffer", data=np.frombuffer(data, np.uint8)))
            buffer = len(self.model.buffers) - 1
        tensors = self.made.tensors
        tensors.append(make("Tensor", name=f"t{len(tensors)}", shape=list(shape), type=ty, buffer=buffer, quantization=quantization,
            **fields))
        return len(tensors) - 1

    def input(self, shape, ty=F32, **fields):
        index = self.tensor(shape, ty, **fields)
        self.made.inputs.append(index)
        return index

    def node(self, op, inputs, outputs, table=None, version=1, custom=None, second=False, **fields):
        node = make("Operator", opcodeIndex=self.model.code(op, version), inputs=list(inputs), outputs=list(outputs))
        if table:
            options, types = make(table, **fields), OPTIONS2 if second else OPTIONS
            suffix = "2" if second else ""
            setattr(node, "builtinOptions" + suffix, options)
            setattr(node, f"builtinOptions{suffix}Type", getattr(types, table))
        if custom is not None:
            node.customOptions = np.frombuffer(custom, np.uint8)
        self.made.operators.append(node)
        return outputs[-1] if outputs else None

    def add(self, x, y=None, shape=(1,)):
        return self.node("ADD", [x, x if y is None else y], [self.tensor(shape)], "AddOptions")

    def outputs(self, *indices):
        self.made.outputs = list(indices)
        return self


class Model:
    def __init__(self):
        self.graphs, self.buffers, self.codes, self.known, self.signatures = [], [make("Buffer")], [], {}, []

    def graph(self, name="main"):
        return Graph(self, name)

    def code(self, op, version):
        if (op, version) not in self.known:
            # "CUSTOM", or "CUSTOM:" and a name.
            builtin, name = getattr(OP, op.partition(":")[0]), op.partition(":")[2] or "Unknown"
            custom = name.encode() if op.startswith("CUSTOM") else None
            self.codes.append(make("OperatorCode", builtinCode=builtin, deprecatedBuiltinCode=min(builtin, 127), version=version,
                customCode=custom))
            self.known[op, version] = len(self.codes) - 1
        return self.known[op, version]

    def pack(self):
        model = make("Model", version=3, operatorCodes=self.codes, subgraphs=self.graphs, buffers=self.buffers,
            signatureDefs=self.signatures)
        builder = flatbuffers.Builder(1 << 16)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def one(op, operands, outputs=((1,),), table=None, version=1, custom=None, second=False, **fields):
    """A model of one node. An operand is None, a shape, or (shape, type), (shape, type, data); an output is a shape or (shape, type)."""
    model = Model()
    graph, inputs, results = model.graph(), [], []
    for operand in operands:
        if operand is None:
            inputs.append(-1)
            continue
        shape, ty, data = (*operand, None)[:3] if operand and isinstance(operand[0], (list, tuple)) else (operand, F32, None)
        inputs.append(graph.input(shape, ty) if data is None else graph.tensor(shape, ty, data))
    for output in outputs:
        shape, ty = output if output and isinstance(output[0], (list, tuple)) else (output, F32)
        results.append(graph.tensor(shape, ty))
    graph.node(op, inputs, results, table, version, custom, second, **fields)
    graph.outputs(*results)
    return model


def ints(*values):
    return [len(values)], I32, i32(*values)


def scalar(value):
    return [], I32, i32(value)


def giants():
    """Results of a gigabyte from inputs of bytes: by a size in the file."""
    for count in (1 << 28) - 8, 250_000_000:
        for ty, width, value in (F32, 4, f32(1.5)), (I8, 1, b"\3"), (I64, 8, i32(7, 0)):
            n, x = min(count * 4 // width, MAX_I32), ([1], ty)
            yield f"fill_{n}", one("FILL", [ints(n), ([], ty, value)], [([1], ty)])
            yield f"tile_{n}", one("TILE", [x, ints(n)], [([1], ty)])
            yield f"tile_pairs_{n}", one("TILE", [([3, 1], ty), ints(n // 6, 2)], [([1, 1], ty)])
            yield f"broadcast_{n}", one("BROADCAST_TO", [([1, 3, 1], ty), ints(n // 12, 3, 4)], [([1], ty)])
            both = ([], ty, value)
            yield f"one_hot_{n}", one("ONE_HOT", [([2], I32), scalar(n // 2), both, both], [([1], ty)], "OneHotOptions", axis=0)
    for k, (ty, start, end, delta) in enumerate((
        (F32, 0, 1e9, 4.1), (I32, -MAX_I32, MAX_I32, 17), (I32, MAX_I32, -MAX_I32 - 1, -1), (F32, 0, 1, 1e-45), (F32, 0, math.nan, 1),
        (I32, 0, 5, 0),
    )):
        values = [([], ty, (f32 if ty == F32 else i32)(v)) for v in (start, end, delta)]
        yield f"range_{k}", one("RANGE", values, [([1], ty)])
    wide, tall = ([1, 16000], F32), ([16000, 1], F32)
    for op, table in (("POW", "PowOptions"), ("ADD", "AddOptions"), ("FLOOR_MOD", "FloorModOptions"), ("ATAN2", None),
        ("DIV", "DivOptions")):
        yield f"outer_{op}", one(op, [tall, wide], table=table)
    yield "outer_LESS", one("LESS", [([32000, 1], F32), ([1, 32000], F32)], [([1], BOOL)], "LessOptions")
    yield "outer_SELECT", one("SELECT_V2", [([16000, 1], BOOL), wide, []], table="SelectV2Options")
    for op in ("EXP", "SIN", "LOGISTIC", "TANH", "GELU", "ELU", "SQRT", "NEG", "SIGN", "ROUND", "CUMSUM", "SOFTMAX", "LOG_SOFTMAX"):
        more = [scalar(0)] if op == "CUMSUM" else []
        yield f"long_{op}", one(op, [[16000, 16000], *more], table={"CUMSUM": "CumsumOptions", "SOFTMAX": "SoftmaxOptions"}.get(op))
    for k, (a, b) in enumerate((([1, 20000], [20000, 1]), ([16000, 16000],) * 2, ([5000, 5000],) * 2, ([100, 1, 10000], [100, 10000, 1]))):
        yield f"product_{k}", one("BATCH_MATMUL", [a, b], table="BatchMatMulOptions")


UNARY = ("ABS", "EXP", "RELU", "LOGISTIC", "SHAPE", "RANK", "CUMSUM", "SOFTMAX", "L2_NORMALIZATION", "LOCAL_RESPONSE_NORMALIZATION",
    "WHERE",
         "ZEROS_LIKE", "SQUEEZE", "LOG_SOFTMAX", "NEG", "SIGN", "UNIQUE", "CAST", "MATRIX_DIAG", "TRANSPOSE", "REVERSE_V2", "ARG_MAX", "TOPK_V2",
         "GATHER", "EXPAND_DIMS", "SPLIT", "SUM", "MEAN", "REDUCE_MAX", "REDUCE_PROD", "REDUCE_ANY")
TABLES = {"SHAPE": "ShapeOptions", "CUMSUM": "CumsumOptions", "SOFTMAX": "SoftmaxOptions", "L2_NORMALIZATION": "L2NormOptions",
    "CAST": "CastOptions",
          "LOCAL_RESPONSE_NORMALIZATION": "LocalResponseNormalizationOptions", "UNIQUE": "UniqueOptions", "GATHER": "GatherOptions",
          "SPLIT": "SplitOptions", "SUM": "ReducerOptions", "MEAN": "ReducerOptions", "REDUCE_MAX": "ReducerOptions",
          "REDUCE_PROD": "ReducerOptions", "REDUCE_ANY": "ReducerOptions"}


def shapes():
    """Tensors without elements, with huge other dimensions, or of hundreds of dimensions."""
    for k, shape in enumerate(([MAX_I32, MAX_I32, 0], [0, MAX_I32], [MAX_I32, 0, MAX_I32, MAX_I32], [65536, 65536, 0, 1],
        [40000, 40000], [MAX_I32, 0], [0] * 40)):
        for op in UNARY:
            rank = len(shape)
            operand = (shape, BOOL) if op in ("WHERE", "REDUCE_ANY") else shape
            fields, operands = {}, [operand]
            outputs = [([1], {"SHAPE": I32, "RANK": I32, "ARG_MAX": I32, "WHERE": I64, "REDUCE_ANY": BOOL}.get(op, F32))]
            if op in ("CUMSUM", "ARG_MAX", "EXPAND_DIMS", "TOPK_V2"):
                operands.append(scalar(0))
            elif op in ("TRANSPOSE", "SUM", "MEAN", "REDUCE_MAX", "REDUCE_PROD", "REDUCE_ANY"):
                operands.append(ints(*reversed(range(rank))))
            elif op == "REVERSE_V2":
                operands.append(ints(0))
            elif op == "GATHER":
                operands.append(ints(0, 0))
                fields = {"axis": rank - 1}
            elif op == "SPLIT":
                operands, fields = [scalar(0), operand], {"numSplits": 1}
            if op in ("TOPK_V2", "UNIQUE"):
                outputs.append(([1], I32))
            yield f"shape_{op}_{k}", one(op, operands, outputs, TABLES.get(op), **fields)
    for a, b in ([MAX_I32, 0], [0, MAX_I32]), ([0, MAX_I32], [MAX_I32, 0]), ([MAX_I32, MAX_I32, 0, 1], [1, 1, 1, 0]):
        yield f"product_of_nothing_{len(a)}_{a[0]}", one("BATCH_MATMUL", [a, b], table="BatchMatMulOptions")
        yield f"sum_of_nothing_{len(a)}_{a[0]}", one("ADD", [a, a], table="AddOptions")
    for k, (shape, size) in enumerate((
        ([1, 1, 1, 1], (16000, 16000)), ([0, 1, 1, 1], (MAX_I32, MAX_I32)), ([1, 0, 0, 1], (4, 4)), ([1, 1, 1, 0], (MAX_I32, MAX_I32)),
        ([1, MAX_I32, MAX_I32, 0], (1, 1)), ([1, 2, 2, 1], (MAX_I32, 1)), ([1, 2, 2, 1], (-1, 0)),
    )):
        yield f"bilinear_{k}", one("RESIZE_BILINEAR", [shape, ints(*size)], table="ResizeBilinearOptions")
        yield f"nearest_{k}", one("RESIZE_NEAREST_NEIGHBOR", [shape, ints(*size)], table="ResizeNearestNeighborOptions")
    for k, (shape, size) in enumerate((
        ([0, 1, 1], (1, 1 << 30)), ([1, 1, 1], (1, 1 << 27)), ([1 << 14, 1, 1], (1, 1 << 13)), ([1, 4096, 4096], (4096, 4096)),
        ([MAX_I32, 0, 0], (1, 1)),
    )):
        yield f"fourier_{k}", one("RFFT2D", [shape, ints(*size)], [([1], TYPE.COMPLEX64)], "Rfft2dOptions")
    for rank in 9, 64, 1000, 30000:
        ones = [1] * rank
        yield f"rank_add_{rank}", one("ADD", [ones, ones], table="AddOptions")
        yield f"rank_transpose_{rank}", one("TRANSPOSE", [ones, ints(*reversed(range(rank)))], table="TransposeOptions")
        yield f"rank_sum_{rank}", one("SUM", [ones, ints(*range(rank))], table="ReducerOptions")


def windows():
    """Huge strides, dilations, windows, blocks and paddings, and convolutions without channels."""
    for k, (x, w, stride, dilation) in enumerate((
        ([1, 4, 4, 2], [3, 3, 3, 2], MAX_I32, 1), ([1, 4, 4, 2], [3, 3, 3, 2], 1, MAX_I32), ([MAX_I32, 0, 4, 2], [3, 3, 3, 2], 1, 1),
        ([0, MAX_I32, MAX_I32, 2], [3, 3, 3, 2], 1, 1), ([1, 4, 4, 2], [0, 3, 3, 2], 1, 1), ([1, 4, 4, 0], [3, 3, 3, 0], 1, 1),
        ([1, 1, 1, 1], [1, 1, 1, 1], 0, 1),
        ([1, 4, 4, 2], [3, 3, 3, 2], 1, 0), ([1, 4, 4, 2], [3, 3, 3, 2], -1, 1), ([1, 30000, 30000, 0], [2, 3, 3, 0], 1, 1),
        ([1, 16000, 16000, 1], [1, 1, 1, 1], 1, 1), ([1, 2000, 2000, 1], [8, 31, 31, 1], 1, 1),
    )):
        for padding in 0, 1:
            fields = dict(padding=padding, strideH=stride, strideW=stride, dilationHFactor=dilation, dilationWFactor=dilation)
            for op, table, shape, more in (("CONV_2D", "Conv2DOptions", w, {}), ("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions",
                [1, *w[1:]], {"depthMultiplier": 1})):
                weights = (shape, F32, f32(*[1] * math.prod(shape)) or None)
                yield f"{op}_{k}_{padding}", one(op, [x, weights, None], table=table, **fields, **more)
    for k, (x, window, stride) in enumerate((
        ([1, 4, 4, 2], MAX_I32, 1), ([1, 4, 4, 2], 2, MAX_I32), ([0, MAX_I32, MAX_I32, 1], 2, 1), ([MAX_I32, 0, 1, 1], 1, 1),
        ([1, 4, 4, 0], 2, 2), ([1, 4, 4, 1], 0, 1),
        ([1, 4, 4, 1], 2, 0), ([1, 4, 4, 1], -3, 1), ([1, 15000, 15000, 1], 1, 1), ([1, 3000, 3000, 1], 2999, 1), ([1, 3000, 3000, 3],
        1500, 1),
    )):
        for op in ("MAX_POOL_2D", "AVERAGE_POOL_2D", "L2_POOL_2D"):
            for padding in 0, 1:
                fields = dict(padding=padding, strideH=stride, strideW=stride, filterHeight=window, filterWidth=window)
                yield f"{op}_{k}_{padding}", one(op, [x], table="Pool2DOptions", **fields)
    for k, (to, x, w, stride) in enumerate((
        ([1, MAX_I32, 1, 1], [1, 4, 4, 1], [1, 3, 3, 1], 1), ([1, 30000, 1, 1], [1, 4, 4, 1], [1, 3, 3, 1], MAX_I32),
        ([0, MAX_I32, MAX_I32, 1], [0, 1, 1, 1], [1, 1, 1, 1], 1),
        ([1, 16000, 16000, 1], [1, 1, 1, 1], [1, 1, 1, 1], 16000), ([1, 5000, 5000, 8], [1, 5000, 5000, 1], [8, 3, 3, 1], 1),
    )):
        operands = [ints(*to), (w, F32, f32(*[1] * math.prod(w))), x]
        yield f"transpose_conv_{k}", one("TRANSPOSE_CONV", operands, table="TransposeConvOptions", padding=0, strideH=stride,
            strideW=stride)
    none = ([2, 2], I32, i32(0, 0, 0, 0))
    for block in 2, 10**6, MAX_I32:
        pads = ([2, 2], I32, i32(0, max(block - 4, 0), 0, 0))
        for batch in 0, 1:
            yield f"to_batch_{batch}_{block}", one("SPACE_TO_BATCH_ND", [[batch, 4, 4, 1], ints(block, 1), pads])
            yield f"to_batches_{batch}_{block}", one("SPACE_TO_BATCH_ND", [[batch, 4, 4, 1], ints(block, block), none])
            yield f"to_space_{batch}_{block}", one("BATCH_TO_SPACE_ND", [[batch, 4, 4, 1], ints(block, block), none])
        yield f"depth_to_space_{block}", one("DEPTH_TO_SPACE", [[1, 2, 2, 0]], table="DepthToSpaceOptions", blockSize=block)
        yield f"space_to_depth_{block}", one("SPACE_TO_DEPTH", [[1, 0, 0, 1]], table="SpaceToDepthOptions", blockSize=block)
    for k, pads in enumerate(((MAX_I32, MAX_I32), (0, 250_000_000), (-1, 1), (MAX_I32, -MAX_I32), (1 << 30, 1 << 30))):
        row, matrix = ([1, 2], I32, i32(*pads)), ([2, 2], I32, i32(0, 0, *pads))
        yield f"pad_{k}", one("PAD", [[1], row])
        yield f"pad_nothing_{k}", one("PAD", [[0, 1], matrix])
        yield f"pad_bytes_{k}", one("PADV2", [([1, 1], I8), matrix, ([1], I8, b"\1")], [([1], I8)])
        yield f"mirror_{k}", one("MIRROR_PAD", [[4], row], table="MirrorPadOptions", mode=1)
    for k, (begin, end, stride) in enumerate(((0, MAX_I32, 1), (-MAX_I32, MAX_I32, 1), (0, 4, -MAX_I32 - 1), (MAX_I32, -MAX_I32 - 1,
        -1), (0, 0, 0), (3, 3, MAX_I32))):
        lists = [ints(v, v) for v in (begin, end, stride)]
        fields = dict(beginMask=k, endMask=-(k == 2), ellipsisMask=k % 2, newAxisMask=MAX_I32 * (k == 4))
        yield f"strided_slice_{k}", one("STRIDED_SLICE", [[4, 4], *lists], table="StridedSliceOptions", **fields)
        yield f"slice_{k}", one("SLICE", [[4, 4], ints(begin, 0), ints(end, -1)], table="SliceOptions")


def values():
    """Params and indices at the ends of their ranges."""
    for k, v in enumerate((0, MAX_I32, -1, -MAX_I32 - 1, 4)):
        count = 250_000_000 if k == 4 else v
        random = dict(table="RandomOptions", seed=1, seed2=2)
        cases = [
            ("GATHER_ND", [[4, 4], ([2, 2], I32, i32(0, v, v, 0))], F32, {"table": "GatherNdOptions"}),
            ("SCATTER_ND", [([2, 1], I32, i32(0, v)), [2, 3], ints(4, 3)], F32, {"table": "ScatterNdOptions"}),
            ("SCATTER_ND", [([2, 1], I32), [2, 3], ints(max(v, 5), 3)], F32, {"table": "ScatterNdOptions"}),
            ("EMBEDDING_LOOKUP", [ints(0, v), ([4, 3], F32, f32(*range(12)))], F32, {}),
            ("SPARSE_TO_DENSE", [ints(0, v), ints(250_000_000), ([], F32, f32(1)), ([], F32, f32(0))], F32,
            {"table": "SparseToDenseOptions"}),
            ("SEGMENT_SUM", [[2, 2], ints(0, v)], F32, {"table": "SegmentSumOptions"}),
            ("UNSORTED_SEGMENT_SUM", [[2, 2], ints(0, v), scalar(MAX_I32 if k == 1 else 10**8)], F32,
            {"table": "UnsortedSegmentSumOptions"}),
            ("DYNAMIC_UPDATE_SLICE", [[4, 4], [2, 2], ints(v, v)], F32, {"table": "DynamicUpdateSliceOptions"}),
            ("REVERSE_SEQUENCE", [[4, 4], ints(1, 2, 3, v)], F32, {"table": "ReverseSequenceOptions", "seqDim": 1}),
            ("ONE_HOT", [ints(0, v), scalar(v), ([], F32, f32(1)), ([], F32, f32(0))], F32, {"table": "OneHotOptions", "axis": -1}),
            ("BUCKETIZE", [[16000, 16000]], I32, {"table": "BucketizeOptions",
            "boundaries": [float(i) for i in range(v if 0 < v < 9 else 3)]}),
            ("MULTINOMIAL", [[1, 4], scalar(count)], I64, random),
            ("RANDOM_UNIFORM", [ints(count)], F32, random),
            ("RANDOM_STANDARD_NORMAL", [ints(count)], F32, random),
            ("BROADCAST_ARGS", [([30_000_000], I32), ([30_000_000 if k < 3 else 2], I32)], I32, {}),
            ("TRANSPOSE", [[16000, 16000], ints(1, v)], F32, {"table": "TransposeOptions"}),
            ("MATRIX_DIAG", [([16000], [MAX_I32, 0], [0, MAX_I32], [46341], [3, 9000])[k]], F32, {"table": "MatrixDiagOptions"}),
            ("LOCAL_RESPONSE_NORMALIZATION", [[1, 100, 100, 2000]], F32,
             dict(table="LocalResponseNormalizationOptions", radius=v, bias=1.0, alpha=1.0, beta=0.5)),
            ("SKIP_GRAM", [([1], STRING)], STRING, dict(table="SkipGramOptions", ngramSize=v, maxSkipSize=MAX_I32, includeAllNgrams=True)),
            ("PACK", [[3]] * 3, F32, {"table": "PackOptions", "valuesCount": v, "axis": v}),
            ("UNPACK", [[3, 2]], F32, {"table": "UnpackOptions", "num": v, "axis": v}),
            ("CONCATENATION", [[3, 2]] * 2, F32, {"table": "ConcatenationOptions", "axis": v}),
            ("RESHAPE", [[4, 2], ints(v, -1, 0)], F32, {"table": "ReshapeOptions", "newShape": [1]}),
            ("SQUEEZE", [[1, 2]], F32, {"table": "SqueezeOptions", "squeezeDims": [v]}),
            ("EXPAND_DIMS", [[1, 2], scalar(v)], F32, {"table": "ExpandDimsOptions"}),
        ]
        for i, (op, operands, ty, fields) in enumerate(cases):
            yield f"value_{op}_{i}_{k}", one(op, operands, [([1], ty)], **fields)
        yield f"value_TOPK_{k}", one("TOPK_V2", [[1000, 100000], scalar(10**5 if k == 4 else v)], [([1], F32), ([1], I32)], "TopKV2Options")
        yield f"value_SPLIT_V_{k}", one("SPLIT_V", [[4, 2], ints(v, -1), scalar(0)], [([1], F32)] * 2, "SplitVOptions", numSplits=2)
        scores = [[20000, 4], [20000], scalar(v), ([], F32, f32(1)), ([], F32, f32(-1e30))]
        yield f"value_NMS_{k}", one("NON_MAX_SUPPRESSION_V4", scores, [([1], I32), ([], I32)], "NonMaxSuppressionV4Options")
    for k, (scales, zeros, axis) in enumerate((
        ([0.0], [0], 0), ([math.inf], [0], 0), ([math.nan], [0], 0), ([1e-38], [MAX_I32], 0), ([-1.0], [0], 0), ([1.0] * 3, [0] * 2, 7),
        ([1.0] * 10**5, [0] * 10**5, 0), ([], [], 0),
    )):
        for op in QUANTIZED:
            yield f"quantized_{op}_{k}", quantized_model(op, make("QuantizationParameters", scale=scales, zeroPoint=zeros,
                quantizedDimension=axis))


QUANTIZED = {"FULLY_CONNECTED": "FullyConnectedOptions", "ADD": "AddOptions", "MUL": "MulOptions", "LOGISTIC": None,
    "SOFTMAX": "SoftmaxOptions", "QUANTIZE": None,
             "DEQUANTIZE": None, "MEAN": "ReducerOptions", "TANH": None, "RSQRT": None, "EXP": "ExpOptions", "LEAKY_RELU": "LeakyReluOptions",
             "HARD_SWISH": None, "SUM": "ReducerOptions", "DIV": "DivOptions", "SQUARED_DIFFERENCE": "SquaredDifferenceOptions"}


def quantized_model(op, quantization):
    model = Model()
    graph = model.graph()
    x, y = graph.input([1, 4], I8, quantization=quantization), graph.tensor([1, 4], F32 if op == "DEQUANTIZE" else I8,
        quantization=quantization)
    inputs = [x]
    if op == "FULLY_CONNECTED":
        inputs += [graph.tensor([4, 4], I8, bytes(range(16)), quantization), graph.tensor([4], I32, i32(1, 2, 3, 4), quantization)]
    elif op in ("MEAN", "SUM"):
        inputs.append(graph.tensor([1], I32, i32(1)))
    elif op in ("ADD", "MUL", "DIV", "SQUARED_DIFFERENCE"):
        inputs.append(x)
    graph.node(op, inputs, [y], QUANTIZED[op], 4 if op == "FULLY_CONNECTED" else 2)
    graph.outputs(y)
    return model


def call(graph, kind, callee, x, shape=(1,)):
    """A call of subgraph `callee`; a loop's condition is subgraph `callee` + 1."""
    y = graph.tensor(shape)
    if kind == "CALL":
        graph.node("CALL", [x], [y], "CallOptions", subgraph=callee)
    elif kind == "WHILE":
        graph.node("WHILE", [x], [y], "WhileOptions", bodySubgraphIndex=callee, condSubgraphIndex=callee + 1)
    elif kind == "CASE":
        index = graph.tensor([], I32, i32(0))
        graph.node("STABLEHLO_CASE", [index, x], [y], "StablehloCaseOptions", second=True, branchSubgraphIndices=[callee])
    elif kind == "IF":
        yes = graph.tensor([1], BOOL, b"\1")
        graph.node("IF", [yes, x], [y], "IfOptions", thenSubgraphIndex=callee, elseSubgraphIndex=callee)
    else:
        fields = dict(name="part", decompositionSubgraphIndex=callee, version=1,
            compositeAttributes=np.frombuffer(flexbuffers.Dumps({}), np.uint8))
        graph.node("STABLEHLO_COMPOSITE", [x], [y], "StableHLOCompositeOptions", second=True, **fields)
    return y


def condition(model, value):
    graph = model.graph("condition")
    graph.input([1])
    graph.outputs(graph.tensor([1], BOOL, bytes([value])))


def leaf(model):
    graph = model.graph("leaf")
    graph.outputs(graph.add(graph.input([1])))


def nested(kind, levels, calls, ends=0):
    """Subgraphs that call the next one `calls` times each; conditions of loops return `ends`."""
    model, step = Model(), 2 if kind == "WHILE" else 1
    for level in range(levels):
        graph = model.graph()
        x = graph.input([1])
        for _ in range(calls):
            x = call(graph, kind, (level + 1) * step, x)
        graph.outputs(x)
        if step == 2:
            condition(model, ends)
    leaf(model)
    condition(model, ends)
    return model


def subgraphs():
    """Calls in circles, in depth and in number; loops that do not end or that grow; branches of other shapes."""
    for kind in ("CALL", "IF", "CASE", "WHILE", "COMPOSITE"):
        for levels, calls in (3, 1), (63, 1), (64, 1), (65, 1), (2000, 1), (12, 2), (22, 2), (40, 2), (6, 10), (3, 70), (1, 50000):
            yield f"nested_{kind}_{levels}_{calls}", nested(kind, levels, calls)
        for size in 1, 2, 50:
            model = Model()
            for i in range(size):
                graph = model.graph()
                graph.outputs(call(graph, kind, (i + 1) % size, graph.input([1])))
            yield f"circle_{kind}_{size}", model
    for levels in 1, 2, 30, 64:
        yield f"endless_{levels}", nested("WHILE", levels, 1, ends=1)
    for body, cond in (0, 0), (1, 1), (-1, 1), (1, -1), (MAX_I32, 1), (1, 9):
        model = Model()
        graph = model.graph()
        graph.node("WHILE", [graph.input([1])], [graph.tensor([1])], "WhileOptions", bodySubgraphIndex=body, condSubgraphIndex=cond)
        graph.outputs(1)
        condition(model, 1)
        yield f"loop_of_{body}_{cond}", model
    for times in 2, 1000, 1 << 30:
        model = Model()
        graph = model.graph()
        graph.outputs(call(graph, "WHILE", 1, graph.input([1])))
        body = model.graph("body")
        body.outputs(body.node("TILE", [body.input([1]), body.tensor([1], I32, i32(times))], [body.tensor([1])]))
        condition(model, 1)
        yield f"loop_grows_{times}", model
    for levels in 20, 40, 60:
        model = Model()
        for i in range(levels):
            graph = model.graph()
            x = call(graph, "CALL", min(i + 1, levels), graph.input([1]))
            graph.outputs(call(graph, "CALL", min(i + 2, levels), x))
        leaf(model)
        yield f"fibonacci_{levels}", model
    for levels in 4, 16, 40:
        model = Model()
        for i in range(levels):
            graph = model.graph()
            x = graph.input([1])
            twice = graph.node("CONCATENATION", [x, x], [graph.tensor([2])], "ConcatenationOptions")
            graph.outputs(call(graph, "CALL", i + 1, x), call(graph, "CALL", i + 1, twice, [2]))
            graph.made.outputs.pop()
        leaf(model)
        yield f"alternating_{levels}", model
    for depth in 3, 40, 65:
        model = Model()
        for i in range(depth):
            graph = model.graph()
            c, x = graph.input([1], BOOL), graph.input([1])
            callees = dict(thenSubgraphIndex=i + 1, elseSubgraphIndex=min(i + 2, depth))
            graph.outputs(graph.node("IF", [c, c, x], [graph.tensor([1])], "IfOptions", **callees))
        graph = model.graph()
        graph.input([1], BOOL)
        graph.outputs(graph.add(graph.input([1])))
        yield f"branches_{depth}", model


def graphs():
    """Many nodes, operands and outputs; values that double; variables, tables, signatures, sparse tensors, strings, FlexBuffers."""
    for n in 24, 40, 70:
        for op, fields in ("CONCATENATION", {}), ("PACK", {"valuesCount": 2}):
            for data in None, f32(1):
                model = Model()
                graph = model.graph()
                x = graph.input([1]) if data is None else graph.tensor([1], F32, data)
                for _ in range(n):
                    x = graph.node(op, [x, x], [graph.tensor([1])], op.title() + "Options", **fields)
                graph.outputs(x)
                yield f"doubling_{op}_{n}_{data is None}", model
    yield "wide_sum", one("ADD_N", [[1]] * 50000, table="AddNOptions")
    model = Model()
    graph = model.graph()
    x = graph.input([64])
    for _ in range(40000):
        x = graph.add(x, shape=[64])
    yield "long_chain", (graph.outputs(x), model)[1]
    graph.outputs(*range(1, 20000))
    yield "all_outputs", model
    model = Model()
    graph = model.graph()
    graph.outputs(*[graph.add(graph.input([1 << 20]), shape=[1 << 20])] * 5000)
    yield "repeated_output", model
    for k, (stored, read) in enumerate((([1], [4]), ([4], [1]), ([1], [4096]), ([0], [3]))):
        model = Model()
        graph = model.graph()
        handle, x = graph.tensor([], RESOURCE), graph.input(stored)
        graph.node("VAR_HANDLE", [], [handle], "VarHandleOptions", container="c", sharedName="v")
        graph.node("ASSIGN_VARIABLE", [handle, x], [], "AssignVariableOptions")
        y = graph.node("READ_VARIABLE", [handle], [graph.tensor(read)], "ReadVariableOptions")
        graph.outputs(graph.add(y, shape=read))
        yield f"variable_{k}", model
    keys = np.arange(100_000, dtype=np.int64)
    for k, values_of in enumerate((strings(*[b""] * len(keys)), strings(b"a", b"b"), i32(MAX_I32, 12, 12))):
        model = Model()
        graph = model.graph()
        table, found = graph.tensor([1], RESOURCE), graph.tensor([1], STRING)
        graph.node("HASHTABLE", [], [table], "HashtableOptions", tableId=1, keyDtype=I64, valueDtype=STRING)
        known = [graph.tensor([len(keys)], I64, keys.tobytes()), graph.tensor([len(keys)], STRING, values_of)]
        graph.node("HASHTABLE_IMPORT", [table, *known], [])
        graph.node("HASHTABLE_FIND", [table, graph.input([1], I64), graph.tensor([1], STRING, strings(b"d"))], [found])
        graph.outputs(found)
        yield f"table_{k}", model
    def entry(key, subgraph, inputs=(), outputs=()):
        lists = [[make("TensorMap", name=name, tensorIndex=index) for name, index in of] for of in (inputs, outputs)]
        return make("SignatureDef", signatureKey=key, subgraphIndex=subgraph, inputs=lists[0], outputs=lists[1])
    for k, entries in enumerate((
        [entry("a", 0, [("x", 0)], [("y", 1)])] * 3000, [entry("a", 9)], [entry("a", 0, [("x", MAX_I32)], [("y", 2**32 - 1)])],
        [entry("\x1b[2J", 0, [("\x1b]0;x\7", 0)], [("y\r", 1)])], [entry(f"k{i}", 0, [("x", 0)] * 50,
            [("y", 1)] * 50) for i in range(2000)],
    )):
        model = one("ADD", [[1], [1]], table="AddOptions")
        model.signatures = entries
        yield f"signature_{k}", model
    for k, (shape, order, blocks, dims, data) in enumerate((
        ([2, 3], [0, 1], [], [2, ([0, 1, 2], [0, 2])], f32(1, 2)), ([30000, 30000], [0, 1], [], [30000, ([0] * 30001, [])], f32(1)),
        ([MAX_I32, MAX_I32], [0, 1], [], [MAX_I32, ([0, 0], [])], f32(1)), ([2, 3], [0, 1], [], [2, ([0, MAX_I32, 2], [0, 2])], f32(1, 2)),
        ([2, 3], [0, 1], [], [2, ([0, -1, 2], [0, -2])], f32(1, 2)), ([2, 3], [5, -1], [], [2, ([0, 1, 2], [0, 2])], f32(1, 2)),
        ([4, 4], [0, 1, 2, 3], [7, -3], [MAX_I32, ([0, 1, 2], [0, 1]), MAX_I32, MAX_I32], f32(*range(8))), ([0, 0], [0, 1], [],
        [0, ([0], [])], f32(1)),
    )):
        def vector(values):
            return make("Int32Vector", values=values)
        def metadata(dim):
            if isinstance(dim, int):
                return make("DimensionMetadata", format=0, denseSize=dim)
            kinds = dict(arraySegmentsType=schema.SparseIndexVector.Int32Vector, arrayIndicesType=schema.SparseIndexVector.Int32Vector)
            return make("DimensionMetadata", format=1, arraySegments=vector(dim[0]), arrayIndices=vector(dim[1]), **kinds)
        model = Model()
        graph = model.graph()
        sparsity = make("SparsityParameters", traversalOrder=order, blockMap=blocks, dimMetadata=[metadata(dim) for dim in dims])
        dense = graph.node("DENSIFY", [graph.tensor(shape, F32, data, sparsity=sparsity)], [graph.tensor(shape)], "DensifyOptions")
        graph.outputs(graph.add(graph.input(shape), dense, shape))
        yield f"sparse_{k}", model
    for op, ty, table, count in ("TANH", TYPE.INT16, None, 3000), ("GELU", TYPE.INT16, "GeluOptions", 3000), ("LOG", I8, None, 20000):
        for distinct in False, True:
            model = Model()
            graph = model.graph()
            def scaled(i, of=graph.tensor, ty=ty, op=op, distinct=distinct):
                scale = 2.0**-15 if op == "TANH" else 0.001 + (i * 1e-6 if distinct else 0)
                return of([7], ty, quantization=make("QuantizationParameters", scale=[scale], zeroPoint=[0]))
            x = scaled(0, graph.input)
            for i in range(count):
                x = graph.node(op, [x], [scaled(i + 1)], table, 3 if op == "TANH" else 2)
            graph.outputs(x)
            yield f"function_tables_{op}_{distinct}", model
    # Sparse tensors as inputs of ops that read dense data.
    for op, table, count in (("ADD", "AddOptions", 2), ("ABS", "AbsOptions", 1), ("SQUEEZE", "SqueezeOptions", 1), ("STABLEHLO_MAXIMUM", None, 2),
        ("CONCATENATION", "ConcatenationOptions", 2), ("FULLY_CONNECTED", "FullyConnectedOptions", 2), ("TRANSPOSE", "TransposeOptions", 2),
        ("CONV_2D", "Conv2DOptions", 2), ("GATHER", "GatherOptions", 2), ("WHERE", None, 1)):
        for shape in [2, 3], [1, 1, 2, 3], [30000, 30000]:
            model = Model()
            graph = model.graph()
            levels = [make("DimensionMetadata", format=0, denseSize=extent) for extent in shape[:-1]]
            rows = math.prod(shape[:-1])
            vectors = [make("Int32Vector", values=values) for values in ([0] + [1] * rows, [0])]
            levels.append(make("DimensionMetadata", format=1, arraySegments=vectors[0], arrayIndices=vectors[1],
                arraySegmentsType=schema.SparseIndexVector.Int32Vector, arrayIndicesType=schema.SparseIndexVector.Int32Vector))
            order = list(range(len(shape)))
            sparsity = make("SparsityParameters", traversalOrder=order, blockMap=[], dimMetadata=levels)
            x = graph.tensor(shape, F32, f32(1), sparsity=sparsity)
            graph.outputs(graph.node(op, [x] * count, [graph.tensor(shape)], table))
            yield f"sparse_input_{op}_{len(shape)}_{shape[0]}", model
    yield "strings_long", one("TILE", [([1], STRING, strings(b"a" * 60000)), ints(17000)], [([1], STRING)])
    yield "strings_empty", one("TILE", [([1], STRING, strings(b"")), ints(200_000_000)], [([1], STRING)])
    for k, words in enumerate(((2, 4, MAX_I32, -5), (MAX_I32, 12, 12), (-1, 8), (2, 16, 12, 16))):
        yield f"strings_invalid_{k}", one("RESHAPE", [([2], STRING, i32(*words)), ints(2, 1)], [([1], STRING)], "ReshapeOptions")
    many = strings(*[b"x" * 100] * 20000)
    yield "strings_compared", one("EQUAL", [([20000, 1], STRING, many), ([1, 20000], STRING, many)], [([1], BOOL)], "EqualOptions")
    grams = dict(ngramSize=20, maxSkipSize=20, includeAllNgrams=True)
    yield "strings_grams", one("SKIP_GRAM", [([1], STRING, strings(b"a " * 20000))], [([1], STRING)], "SkipGramOptions", **grams)
    for k, options in enumerate((b"\0" * 3, b"\xff" * 64, bytes(range(256)), flexbuffers.Dumps([[]] * 50000),
        flexbuffers.Dumps({f"k{i}": i for i in range(50000)}))):
        yield f"flexbuffer_{k}", one("CUSTOM", [[4]], [[4]], custom=bytes(options))


def work():
    """Nodes that take a kernel or a device long without an interruption, loops of many iterations, and tables of custom ops."""
    for size in 1800, 7000:
        yield f"work_product_{size}", one("BATCH_MATMUL", [[size, size]] * 2, [[size, size]], "BatchMatMulOptions")
    image = [1, 2000, 2000, 1]
    for op in "AVERAGE_POOL_2D", "MAX_POOL_2D":
        for size in 7, 700, 1999:
            window = dict(padding=0, strideW=1, strideH=1, filterWidth=size, filterHeight=size)
            yield f"work_{op}_{size}", one(op, [image], [image], "Pool2DOptions", **window)
    model = Model()
    graph = model.graph()
    x, window = graph.input([46341, 9, 6, 3]), dict(padding=1, strideW=3, strideH=2, filterWidth=4, filterHeight=3)
    pools = [graph.node("MAX_POOL_2D", [x], [graph.tensor([46341, 4, 1, 3])], "Pool2DOptions", **window) for _ in range(2000)]
    graph.outputs(pools[-1])
    yield "work_pools", model
    for count in 22000, 70000, 1000000:
        operands = [([count, 1], I32), [count], ints(count)]
        yield f"work_scatter_{count}", one("SCATTER_ND", operands, [[count]], "ScatterNdOptions")
    for rows, size, k in (1, 1000000, 2000), (60000, 1000, 1000):
        operands, outputs = [[rows, size], scalar(k)], [[rows, k], ([rows, k], I32)]
        yield f"work_topk_{rows}_{k}", one("TOPK_V2", operands, outputs, "TopKV2Options")
    for channels, radius in (20000, 1000), (200000, MAX_I32), (5, MAX_I32):
        shape, params = [1, 1, 10**6 // channels, channels], dict(radius=radius, bias=1.0, alpha=1.0, beta=0.5)
        table = "LocalResponseNormalizationOptions"
        yield f"work_lrn_{channels}_{radius}", one("LOCAL_RESPONSE_NORMALIZATION", [shape], [shape], table, **params)
    for size in 70000, 30000000:
        yield f"work_sum_{size}", one("SUM", [[size, 1], ints(0)], [[1]], "ReducerOptions")
        yield f"work_cumsum_{size}", one("CUMSUM", [[1, size], scalar(1)], [[1, size]], "CumsumOptions")
        yield f"work_softmax_{size}", one("SOFTMAX", [[1, size]], [[1, size]], "SoftmaxOptions", beta=1.0)
    options = bytes(flexbuffers.Dumps({"filterbank_channel_count": 4096, "dct_coefficient_count": 4096, "lower_frequency_limit": 20,
        "upper_frequency_limit": 4000}))
    for count, shape in (300, [1, 1, 16]), (1, [0, 0, 500_000_000]):
        model = Model()
        graph = model.graph()
        x, rate = graph.input(shape), graph.tensor([1], I32, i32(16000))
        made = [graph.node("CUSTOM:Mfcc", [x, rate], [graph.tensor([*shape[:2], 4096])], custom=options) for _ in range(count)]
        graph.outputs(*made)
        yield f"work_mfcc_{count}_{shape[2]}", model
    model = Model()
    graph = model.graph()
    x, options = graph.input([2**20 + 100, 1]), bytes(flexbuffers.Dumps({"window_size": 2**20, "stride": 1}))
    graph.outputs(*[graph.node("CUSTOM:AudioSpectrogram", [x], [graph.tensor([1, 101, 2**19 + 1])], custom=options) for _ in range(50)])
    yield "work_spectrograms", model


def run(command, plain, killed_after):
    """What the command does that it must not, and whether it was ended."""
    killed = False
    with tempfile.TemporaryFile() as errors:
        # Processor time for two threads, and more than the time until it is ended.
        limit = lambda: resource.setrlimit(resource.RLIMIT_CPU, (4 * killed_after, 4 * killed_after))  # noqa: E731
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, preexec_fn=limit)
        start, ended = time.monotonic(), 0
        while not ended:
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
            if not ended and time.monotonic() - start > killed_after:
                # `Popen.kill` would collect a process that has just ended.
                os.kill(process.pid, signal.SIGKILL)
                killed = True
            time.sleep(0 if ended else 0.01)
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        text = errors.read().decode(errors="replace")
    seconds, resident = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
    found = []
    if process.returncode not in range(5) and not (plain and killed and process.returncode == -9):
        found.append(f"ended with {process.returncode}")
    if "panicked" in text or "unexpectedly" in text:
        found.append("a panic: " + " ".join(text.split())[-300:])
    if any(ord(c) < 32 and c not in "\n\t" for c in text):
        found.append("control characters")
    if not plain and seconds > SECONDS:
        found.append(f"{seconds:.1f} s of processor time")
    if not plain and resident > BYTES:
        found.append(f"{resident / 2**30:.2f} GiB of resident memory")
    return found, killed


def generated(folder):
    """The kinds of generated models, each with its files, which are written when they are iterated."""
    folder.mkdir(parents=True, exist_ok=True)
    def write(name, model):
        file = folder / f"{name}.tflite"
        file.write_bytes(model.pack())
        return file
    for kind in giants, shapes, windows, values, subgraphs, graphs, work:
        yield kind.__name__, (write(name, model) for name, model in kind())


def given(folder):
    files = sorted(folder.glob("*.tflite"))
    for first in range(0, len(files), 500):
        yield files[min(first + 500, len(files)) - 1].stem, files[first:first + 500]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default="target/debug/delegraph")
    parser.add_argument("--folder", type=pathlib.Path, default="target/hostile-models")
    parser.add_argument("--on", default="cpu,reference,wgpu")
    parser.add_argument("--models", type=pathlib.Path, help="a folder of models to run instead of generated ones, for example mutants")
    parser.add_argument("--only", type=re.compile, default=re.compile(""), help="a regular expression for names")
    parser.add_argument("--plain", action="store_true", help="without limits")
    parser.add_argument("--seconds", type=int, default=300, help="end a run after so long")
    parser.add_argument("--write", action="store_true", help="write the files and run nothing")
    arguments = parser.parse_args()
    models = runs = findings = ended = 0
    for kind, files in given(arguments.models) if arguments.models else generated(arguments.folder):
        for file in files:
            if not arguments.only.search(file.stem):
                continue
            models += 1
            for on in [] if arguments.write else arguments.on.split(","):
                command = [arguments.program, "run", file, "--delegate", on]
                runs += 1
                options = [] if arguments.plain else ["--max-memory", "1G", "--timeout", "8"]
                found, killed = run(command + options, arguments.plain, arguments.seconds)
                ended += killed
                for text in found:
                    findings += 1
                    print(f"{file.stem} on {on}: {text}", flush=True)
        print(f"after {kind}: {models} models, {runs} runs, {findings} findings", file=sys.stderr, flush=True)
    print(f"{models} models, {runs} runs, {ended} of them ended, {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
