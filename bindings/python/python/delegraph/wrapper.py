"""`Interpreter._interpreter`: LiteRT's private object of C++ functions, which some programs use."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Sequence

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from ._native import Interpreter


class InterpreterWrapper:
    """The functions of LiteRT's wrapper, implemented by the methods of an interpreter, which it does not keep alive."""

    def __init__(self, interpreter: "Interpreter") -> None:
        self._reference = weakref.ref(interpreter)

    @property
    def _owner(self) -> "Interpreter":
        interpreter = self._reference()
        if interpreter is None:
            raise RuntimeError("the interpreter does not exist any more")
        return interpreter

    def AllocateTensors(self, subgraph_index: int = -1) -> None:
        self._first(max(subgraph_index, 0)).allocate_tensors()

    def Invoke(self, subgraph_index: int = 0) -> None:
        self._first(subgraph_index).invoke()

    def ResizeInputTensor(self, i: int, value: Any, strict: bool = False, subgraph_index: int = 0) -> None:
        self._first(subgraph_index).resize_tensor_input(i, value, strict)

    def SetTensor(self, i: int, value: "ArrayLike", subgraph_index: int = 0) -> None:
        self._first(subgraph_index).set_tensor(i, value)

    def GetTensor(self, tensor_index: int, subgraph_index: int = 0) -> "NDArray[Any]":
        return self._owner.get_tensor(tensor_index, subgraph_index)

    def tensor(self, base: Any, tensor_index: int) -> "NDArray[Any]":
        del base
        return self._owner._view(tensor_index)

    def ResetVariableTensors(self) -> None:
        self._owner.reset_all_variables()

    def SetNumThreads(self, num_threads: int) -> None:
        raise NotImplementedError("the number of threads is fixed: pass num_threads to the Interpreter")

    def ModifyGraphWithDelegate(self, pointer: int) -> None:
        raise NotImplementedError("delegates are fixed: pass delegates to the Interpreter")

    def NumSubgraphs(self) -> int:
        return self._owner.num_subgraphs()

    def NumTensors(self, subgraph_index: int = 0) -> int:
        return self._owner._tensor_count(subgraph_index)

    def NumNodes(self) -> int:
        return self._owner._op_count()

    def NodeName(self, i: int) -> str:
        return str(self._owner._get_op_details(i)["op_name"])

    def NodeInputs(self, i: int) -> "NDArray[Any]":
        return self._array(self._owner._get_op_details(i)["inputs"])

    def NodeOutputs(self, i: int) -> "NDArray[Any]":
        return self._array(self._owner._get_op_details(i)["outputs"])

    def InputIndices(self) -> "NDArray[Any]":
        return self._array([detail["index"] for detail in self._owner.get_input_details()])

    def OutputIndices(self) -> "NDArray[Any]":
        return self._array([detail["index"] for detail in self._owner.get_output_details()])

    def TensorName(self, i: int, subgraph_index: int = 0) -> str:
        return str(self._detail(i, subgraph_index, "name"))

    def TensorType(self, i: int, subgraph_index: int = 0) -> Any:
        return self._detail(i, subgraph_index, "dtype")

    def TensorSize(self, i: int, subgraph_index: int = 0) -> "NDArray[Any]":
        return self._array(self._detail(i, subgraph_index, "shape"))

    def TensorSizeSignature(self, i: int, subgraph_index: int = 0) -> "NDArray[Any]":
        return self._array(self._detail(i, subgraph_index, "shape_signature"))

    def TensorQuantization(self, i: int, subgraph_index: int = 0) -> Any:
        return self._detail(i, subgraph_index, "quantization")

    def TensorQuantizationParameters(self, i: int, subgraph_index: int = 0) -> tuple[Any, ...]:
        return tuple(self._detail(i, subgraph_index, "quantization_parameters").values())

    def TensorSparsityParameters(self, i: int, subgraph_index: int = 0) -> Any:
        return self._detail(i, subgraph_index, "sparsity_parameters")

    def GetSignatureDefs(self) -> dict[str, Any]:
        return self._owner._get_full_signature_list()

    def GetSubgraphIndexFromSignature(self, key: str) -> int:
        return self._owner._signature_subgraph(key)

    def _first(self, subgraph_index: int) -> "Interpreter":
        if subgraph_index != 0:
            raise ValueError(f"subgraph {subgraph_index}: other subgraphs than the first run through get_signature_runner")
        return self._owner

    def _detail(self, i: int, subgraph_index: int, key: str) -> Any:
        return self._owner._get_tensor_details(i, subgraph_index)[key]

    @staticmethod
    def _array(values: Sequence[int]) -> "NDArray[Any]":
        import numpy as np

        return np.asarray(values, np.int32)
