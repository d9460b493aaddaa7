"""The interpreter, with the interface of `ai_edge_litert.interpreter` 2.3.0 and Delegraph's additions."""

from __future__ import annotations

import enum
import os
from functools import cached_property
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Sequence, Union

import numpy as np

from . import _native, metrics_portable as metrics
from .delegates import Delegate, DelegateLike, load_delegate, opened

# Importing the package takes hardly longer than importing NumPy: imports for types or for a few calls are local.
if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from numpy.typing import ArrayLike, NDArray

    from .report import Report
    from .wrapper import InterpreterWrapper

__all__ = ["Delegate", "Interpreter", "InterpreterWithCustomOps", "OpResolverType", "SignatureRunner", "load_delegate"]

Details = dict[str, Any]

Registerer = Callable[[dict[str, Any]], Any]
"""A function that adds classes of kernels to a dictionary, by the names of their ops."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_native.forked)


@enum.unique
class OpResolverType(enum.Enum):
    """The kernels of an interpreter. `BUILTIN_REF` selects the reference kernels, all others the optimized ones."""

    AUTO = 0
    BUILTIN = 1
    BUILTIN_REF = 2
    BUILTIN_WITHOUT_DEFAULT_DELEGATES = 3


def _get_op_resolver_id(op_resolver_type: OpResolverType = OpResolverType.AUTO) -> Optional[int]:
    """Returns the number of a resolver in LiteRT, `None` for a value that is not a resolver type."""
    return {"AUTO": 1, "BUILTIN": 1, "BUILTIN_REF": 2, "BUILTIN_WITHOUT_DEFAULT_DELEGATES": 3}.get(
        op_resolver_type.name if _is_resolver_type(op_resolver_type) else ""
    )


class SignatureRunner:
    """Runs a signature of a model, by names of inputs and outputs. Made by `Interpreter.get_signature_runner`."""

    def __init__(self, interpreter: Optional["Interpreter"] = None, signature_key: Optional[str] = None) -> None:
        if not interpreter:
            raise ValueError("None interpreter provided.")
        if not signature_key:
            raise ValueError("None signature_key provided.")
        signatures = interpreter._get_full_signature_list()
        if signature_key not in signatures:
            raise ValueError(f'Invalid signature_key provided: "{signature_key}".')
        self._interpreter = interpreter
        self._signature_key = signature_key
        self._signature_def = signatures[signature_key]
        self._inputs = self._signature_def["inputs"]
        self._outputs = self._signature_def["outputs"].items()
        self._output_names = list(self._signature_def["outputs"])
        self._output_indices = list(self._signature_def["outputs"].values())
        self._subgraph_index = interpreter._signature_subgraph(signature_key)

    @property
    def _interpreter_wrapper(self) -> InterpreterWrapper:
        return self._interpreter._interpreter

    def __call__(self, **kwargs: ArrayLike) -> dict[str, NDArray[Any]]:
        """Resizes the inputs to the arrays, runs the signature and returns the outputs.

        Args:
          **kwargs: an array for each input, by its name in the signature.

        Raises:
          ValueError: if inputs are missing or unknown, or their dtype differs.
          RuntimeError: if the signature cannot run with these shapes.
        """
        if len(kwargs) != len(self._inputs):
            raise ValueError(
                "Invalid number of inputs provided for running a SignatureDef, "
                f"expected {len(self._inputs)} vs provided {len(kwargs)}"
            )
        for name in kwargs:
            if name not in self._inputs:
                raise ValueError(f"Invalid Input name ({name}) for SignatureDef")
        inputs = [(self._inputs[name], value) for name, value in kwargs.items()]
        results = self._interpreter._run_subgraph(self._subgraph_index, inputs, self._output_indices)
        return dict(zip(self._output_names, results))

    def get_input_details(self) -> dict[str, Details]:
        """Returns the details of each input, by its name in the signature."""
        return self._details(self._inputs.items())

    def get_output_details(self) -> dict[str, Details]:
        """Returns the details of each output, by its name in the signature."""
        return self._details(self._outputs)

    def _details(self, ports: Any) -> dict[str, Details]:
        details = self._interpreter._get_tensor_details
        return {name: details(index, self._subgraph_index) for name, index in ports}


class Interpreter(_native.Interpreter):
    """Runs a `.tflite` model.

    The first eleven parameters are those of LiteRT. `experimental_disable_delegate_clustering`,
    `experimental_default_delegate_latest_features`, `experimental_compress_quantization_zero_points`,
    `experimental_disable_delegate_node_fusion` and `experimental_force_delegate_node_profiling` concern delegates of LiteRT
    and have no effect.

    Args:
      model_path: the model's file.
      model_content: the model's bytes, in place of `model_path`.
      experimental_delegates: as `delegates`.
      num_threads: threads of CPU kernels, 1 by default.
      experimental_op_resolver_type: `OpResolverType.BUILTIN_REF` selects the reference kernels.
      experimental_preserve_all_tensors: keep every tensor until the end of `invoke`.
      delegate: a delegate, such as `"wgpu"`. The environment variable `DELEGRAPH_DELEGATE` names one for interpreters
        without a delegate.
      delegates: delegates, in the order in which they claim nodes.
      policy: `prefer`; `require`, which makes nodes on the CPU an error; `report`, which only reports claims.
      custom_ops: kernels of custom ops: classes by the names of ops. A class is created per node with the node's options;
        `prepare(shapes)` returns the shape of each output, or `None` if it depends on data, and `invoke(*arrays)` returns
        the arrays of the outputs.
      ops: libraries of kernels for custom ops: `plugin:PATH`.
      max_memory: bytes that the model may use in addition to its file; by default three quarters of the machine's memory.
      timeout: seconds that each call may take; without a limit by default. A model that exceeds a limit is a RuntimeError
        of the call.

    Raises:
      ValueError: for invalid arguments or models.
    """

    def __init__(
        self,
        model_path: Union[str, "os.PathLike[str]", None] = None,
        model_content: Optional[bytes] = None,
        experimental_delegates: Optional[Sequence[DelegateLike]] = None,
        num_threads: Optional[int] = None,
        experimental_op_resolver_type: OpResolverType = OpResolverType.AUTO,
        experimental_preserve_all_tensors: bool = False,
        experimental_disable_delegate_clustering: bool = False,
        experimental_default_delegate_latest_features: bool = False,
        experimental_compress_quantization_zero_points: bool = False,
        experimental_disable_delegate_node_fusion: bool = False,
        experimental_force_delegate_node_profiling: bool = False,
        *,
        delegate: Optional[DelegateLike] = None,
        delegates: Optional[Sequence[DelegateLike]] = None,
        policy: str = "prefer",
        custom_ops: Optional[Mapping[str, Any]] = None,
        ops: Sequence[str] = (),
        max_memory: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> None:
        if not _is_resolver_type(experimental_op_resolver_type):
            raise ValueError(f"Unrecognized passed in op resolver type: {experimental_op_resolver_type}")
        if num_threads is not None:
            if not isinstance(num_threads, int):
                raise ValueError("type of num_threads should be int")
            if num_threads < 1:
                raise ValueError("num_threads should >= 1")
        if not model_path and not model_content:
            raise ValueError("`model_path` or `model_content` must be specified.")
        if model_path and model_content:
            raise ValueError("Can't both provide `model_path` and `model_content`")
        chosen: list[DelegateLike] = [*(experimental_delegates or ()), *(delegates or ())]
        chosen += [] if delegate is None else [delegate]
        if not chosen and os.environ.get("DELEGRAPH_DELEGATE"):
            chosen = [os.environ["DELEGRAPH_DELEGATE"]]
        self._delegates = opened(chosen)
        self._experimental_compress_quantization_zero_points = experimental_compress_quantization_zero_points
        resolver = OpResolverType[experimental_op_resolver_type.name]
        reference = resolver == OpResolverType.BUILTIN_REF or "reference" in [d for d in chosen if isinstance(d, str)]
        self._options: dict[str, Any] = {
            "num_threads": num_threads,
            "experimental_op_resolver_type": OpResolverType.BUILTIN_REF if reference else resolver,
            "experimental_preserve_all_tensors": experimental_preserve_all_tensors,
            "delegates": self._delegates or ["cpu"],
            "policy": policy,
            "custom_ops": dict(custom_ops or {}),
            "ops": list(ops),
            "max_memory": max_memory,
            "timeout": timeout,
        }
        content = None
        if model_content:
            if not isinstance(model_content, (bytes, bytearray, memoryview)):
                raise TypeError(f"model_content is bytes, not {type(model_content).__name__}")
            content = bytes(model_content)
        self._open(
            os.fspath(model_path) if model_path else None,
            content,
            threads=int(num_threads or 1),
            reference=reference,
            preserve_all=bool(experimental_preserve_all_tensors),
            delegates=[delegate._for_interpreter() for delegate in self._delegates],
            policy=policy,
            ops=list((custom_ops or {}).items()),
            libraries=[path[len("plugin:"):] if path.startswith("plugin:") else path for path in ops],
            max_memory=max_memory,
            timeout=timeout,
        )
        if any(delegate.is_for_litert for delegate in self._delegates):
            # LiteRT applies delegates when the interpreter is made, and some programs read their state then.
            self.allocate_tensors()
        self._signature_defs = self.get_signature_list()
        self._batch: Optional[int] = None
        self._executor: Optional[ThreadPoolExecutor] = None
        self._metrics = metrics.TFLiteMetrics()
        self._metrics.increase_counter_interpreter_creation()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the model's bytes, the options and the shapes of inputs; values of tensors are not part of it."""
        shapes = [(d["index"], d["shape"].tolist()) for d in self.get_input_details()]
        return _restored, (type(self), self._model_content(), self._options, shapes)

    def tensor(self, tensor_index: int) -> Callable[[], NDArray[Any]]:
        """Returns a function that returns an array on a tensor's memory.

        Writing to the array sets an input without a copy. While an array is alive, `invoke`, `allocate_tensors` and
        `resize_tensor_input` raise RuntimeError; the function may be kept.

        Args:
          tensor_index: `index` of a tensor's details.
        """
        return lambda: self._view(tensor_index)

    def get_tensor_details(self, subgraph_index: int = 0) -> list[Details]:
        """Returns the details of every tensor of a subgraph.

        Details are a dictionary: `name`; `index`; `shape`, the current one; `shape_signature`, with -1 for dimensions that
        may be resized; `dtype`, a type of NumPy; `quantization`, scale and zero point of the whole tensor;
        `quantization_parameters`: `scales`, `zero_points`, `quantized_dimension` and `block_size`; `sparsity_parameters`,
        empty for a dense tensor.

        Raises:
          ValueError: if there is no such subgraph.
        """
        count = self.num_subgraphs()
        if subgraph_index < 0 or subgraph_index >= count:
            raise ValueError(
                f"subgraph_index is out of range: {subgraph_index} for the model, which has {count} subgraphs."
            )
        tensors = range(self._tensor_count(subgraph_index))
        return [self._get_tensor_details(index, subgraph_index) for index in tensors]

    def _get_ops_details(self) -> list[Details]:
        """Returns the details of every node of the first subgraph."""
        return [self._get_op_details(index) for index in range(self._op_count())]

    def get_signature_list(self) -> dict[str, dict[str, list[str]]]:
        """Returns the names of inputs and outputs of every signature, by its key."""
        signatures = self._get_full_signature_list().items()
        return {key: {"inputs": list(of["inputs"]), "outputs": list(of["outputs"])} for key, of in signatures}

    def get_signature_runner(self, signature_key: Optional[str] = None) -> SignatureRunner:
        """Returns a function that runs a signature with keyword arguments.

        Args:
          signature_key: the signature; not required if the model has only one.

        Raises:
          ValueError: if the model does not have the signature.
        """
        if signature_key is None:
            if len(self._signature_defs) != 1:
                raise ValueError(
                    f"SignatureDef signature_key is None and model has {len(self._signature_defs)} Signatures. "
                    "None is only allowed when the model has 1 SignatureDef"
                )
            signature_key = next(iter(self._signature_defs))
        return SignatureRunner(interpreter=self, signature_key=signature_key)

    @cached_property
    def _interpreter(self) -> InterpreterWrapper:
        """LiteRT's object of C++ functions."""
        from .wrapper import InterpreterWrapper

        return InterpreterWrapper(self)

    @property
    def experimental_compress_quantization_zero_points(self) -> bool:
        return self._experimental_compress_quantization_zero_points

    def _native_handle(self) -> int:
        raise NotImplementedError("there is no tflite::Interpreter: Delegraph runs the model")

    def report(self) -> Report:
        """Prepares the model, and returns the runner of each node, or the reason of a delegate."""
        from .report import Report

        return Report._of(self._report())

    def submit(self) -> "Future[None]":
        """Runs the model on another thread, and returns a future of the end of `invoke`. One run at a time is possible."""
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor

            self._executor = ThreadPoolExecutor(1, thread_name_prefix="delegraph")
        return self._executor.submit(self.invoke)

    async def invoke_async(self) -> None:
        """Runs the model while other tasks of the event loop continue.

        Raises:
          RuntimeError: as `invoke`.
        """
        import asyncio

        await asyncio.wrap_future(self.submit())

    def predict(self, inputs: Union[ArrayLike, Sequence[ArrayLike], Mapping[str, ArrayLike]]) -> Any:
        """Runs the model on a batch: any number of examples along the first dimension of each input.

        Inputs are resized to the batch if the model allows it. Otherwise the batch is run in pieces of the model's own
        size, the last one padded with zeros. Elements are converted to the inputs' dtypes if NumPy does so without a
        change of kind.

        Args:
          inputs: an array for the only input; a list of arrays in the model's order; or a dictionary by names of the
            model's tensors.

        Returns:
          An array for a model with one output; otherwise a list of arrays in the model's order.

        Raises:
          ValueError: if an input is missing, or arrays do not fit the inputs or each other.
        """
        arrays = self._ordered(inputs)
        lengths = {len(array) for array in arrays}
        if len(lengths) != 1:
            raise ValueError(f"the inputs have batches of different lengths: {sorted(lengths)}")
        count = lengths.pop()
        if count == 0:
            raise ValueError("the batch is empty")
        own = self._own_batch()
        if count == own or self._resized(arrays, count):
            outputs = self._run(arrays)
        else:
            outputs = self._in_pieces(arrays, count, own)
        return outputs[0] if len(outputs) == 1 else outputs

    def _own_batch(self) -> int:
        """The batch of the model's file."""
        if self._batch is None:
            sizes = {int(d["shape"][0]) for d in self.get_input_details() if len(d["shape"])}
            if len(sizes) != 1:
                raise ValueError("the inputs of the model have no batch in common; use set_tensor and invoke")
            self._batch = max(sizes.pop(), 1)
        return self._batch

    def _ordered(self, inputs: Any) -> list[NDArray[Any]]:
        details = self.get_input_details()
        if isinstance(inputs, Mapping):
            names = [d["name"] for d in details]
            if len(self._signature_defs) == 1 and set(inputs) != set(names):
                of = next(iter(self._get_full_signature_list().values()))["inputs"]
                by_index = {index: name for name, index in of.items()}
                names = [by_index.get(d["index"], d["name"]) for d in details]
            if set(inputs) != set(names):
                raise ValueError(f"the inputs are {names}, not {sorted(map(str, inputs))}")
            values = [inputs[name] for name in names]
        elif len(details) == 1 and not (isinstance(inputs, (list, tuple)) and len(inputs) == 1):
            values = [inputs]
        else:
            values = list(inputs)
            if len(values) != len(details):
                raise ValueError(f"the model has {len(details)} inputs, not {len(values)}")
        arrays = []
        for value, detail in zip(values, details):
            array = np.asarray(value)
            if detail["dtype"] is not np.bytes_:
                array = array.astype(detail["dtype"], casting="same_kind", copy=False)
            if array.ndim != len(detail["shape"]):
                raise ValueError(f"input {detail['name']} has {len(detail['shape'])} dimensions, not {array.ndim}")
            arrays.append(array)
        return arrays

    def _resized(self, arrays: list[NDArray[Any]], count: int) -> bool:
        """Resizes the inputs to the batch, if the model declares that it allows that."""
        details = self.get_input_details()
        if any(d["shape_signature"][0] != -1 for d in details):
            return False
        for detail, array in zip(details, arrays):
            self.resize_tensor_input(detail["index"], array.shape, strict=True)
        return True

    def _run(self, arrays: list[NDArray[Any]]) -> list[NDArray[Any]]:
        details = self.get_input_details()
        for detail, array in zip(details, arrays):
            if tuple(detail["shape"]) != array.shape:
                self.resize_tensor_input(detail["index"], array.shape)
        self.allocate_tensors()
        for detail, array in zip(details, arrays):
            self.set_tensor(detail["index"], array)
        self.invoke()
        return [self.get_tensor(d["index"]) for d in self.get_output_details()]

    def _in_pieces(self, arrays: list[NDArray[Any]], count: int, own: int) -> list[NDArray[Any]]:
        pieces = []
        for start in range(0, count, own):
            piece = [array[start:start + own] for array in arrays]
            length = len(piece[0])
            if length < own:
                piece = [np.concatenate([p, np.zeros((own - length, *p.shape[1:]), p.dtype)]) for p in piece]
            outputs = self._run(piece)
            if any(len(output) != own for output in outputs if output.ndim) or any(o.ndim == 0 for o in outputs):
                raise ValueError("the outputs of the model have no batch; use set_tensor and invoke")
            pieces.append([output[:length] for output in outputs])
        return [np.concatenate(of) for of in zip(*pieces)]


class InterpreterWithCustomOps(Interpreter):
    """An interpreter with more kernels.

    Args:
      custom_op_registerers: libraries of kernels, as `ops` of `Interpreter`; or functions that are called with a dictionary
        and add classes to it, as `custom_ops` of `Interpreter`.
      **kwargs: arguments of `Interpreter`.

    Raises:
      ValueError: if a library cannot be loaded.
    """

    def __init__(
        self, custom_op_registerers: Optional[Sequence[Union[str, Registerer]]] = None, **kwargs: Any
    ) -> None:
        self._custom_op_registerers: list[Union[str, Registerer]] = list(custom_op_registerers or [])
        custom_ops: dict[str, Any] = dict(kwargs.pop("custom_ops", None) or {})
        libraries: list[str] = list(kwargs.pop("ops", ()))
        for registerer in self._custom_op_registerers:
            if not isinstance(registerer, str):
                registerer(custom_ops)
            elif registerer in _registerers:
                _registerers[registerer](custom_ops)
            elif "." in registerer and not registerer.startswith("plugin:") and "/" not in registerer:
                library = registerer.split(".")[0] + ".so"
                raise ValueError(
                    f"Loading library '{library}' failed with error '{library}: cannot open shared object file: No such "
                    "file or directory'"
                )
            elif registerer.startswith("plugin:") or "/" in registerer:
                libraries.append(registerer)
            else:
                raise ValueError(f"Looking up symbol '{registerer}' failed: no function registers kernels by this name")
        super().__init__(**kwargs, custom_ops=custom_ops, ops=libraries)


_registerers: dict[str, Registerer] = {}


def register_custom_ops(name: str, function: Registerer) -> None:
    """Lets `InterpreterWithCustomOps` find a function that adds classes of kernels to a dictionary by a name."""
    _registerers[name] = function


def _is_resolver_type(value: Any) -> bool:
    """Whether it is a resolver type of this module or of LiteRT."""
    return isinstance(value, enum.Enum) and value.name in OpResolverType.__members__


def _restored(cls: type[Interpreter], content: bytes, options: dict[str, Any], shapes: list[Any]) -> Interpreter:
    interpreter: Interpreter = cls.__new__(cls)
    Interpreter.__init__(interpreter, model_content=content, **options)
    for index, shape in shapes:
        interpreter.resize_tensor_input(index, shape)
    interpreter.allocate_tensors()
    return interpreter
