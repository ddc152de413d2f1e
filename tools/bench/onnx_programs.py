"""What the rows compute, as models for ONNX Runtime's CPU provider. Optional: `pip install onnx onnxruntime`.

Inputs and outputs are bound once, so that no call copies them. Weights that are constants are initializers, which
ONNX Runtime packs when it loads the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from bench.programs import CannotRun, LibraryProgram, operands
from mlsearch.runner.elements import element
from mlsearch.runner.messages import decode_signature

Array = np.ndarray[Any, Any]
_OPSET, _IR_VERSION = 23, 10


@dataclass(frozen=True)
class Model:
    """Nodes from the inputs `x0`, `x1`, ... to the output `y`."""

    nodes: tuple[onnx.NodeProto, ...]
    arrange: Callable[[Sequence[Array]], list[Array]] = list
    """Operands as the model wants them; not timed."""
    back: Callable[[Array], Array] = np.asarray
    """The output as the payload lays it out; not timed."""


def _node(op: str, inputs: str, output: str = "y", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], **attributes)


def _nchw(arrays: Sequence[Array]) -> list[Array]:
    image, weights = arrays
    return [np.ascontiguousarray(image.transpose(0, 3, 1, 2)), np.ascontiguousarray(weights.transpose(3, 2, 0, 1))]


def _four_dims(arrays: Sequence[Array]) -> list[Array]:
    return [array[None] for array in arrays]


MODELS: Mapping[str, Model] = MappingProxyType(
    {
        "matmul": Model((_node("MatMul", "x0 x1"),)),
        "matmul_bias_gelu": Model(
            (_node("MatMul", "x0 x1", "product"), _node("Add", "product x2", "sum"), _node("Gelu", "sum"))
        ),
        "softmax": Model((_node("Softmax", "x0", axis=-1),)),
        "rmsnorm": Model((_node("RMSNormalization", "x0 x1", epsilon=1e-5),)),
        "layernorm": Model((_node("LayerNormalization", "x0 x1 x2", epsilon=1e-5),)),
        "attention": Model((_node("Attention", "x0 x1 x2", scale=0.125),), _four_dims, lambda y: y[0]),
        # It has single-precision convolutions in this layout only.
        "conv2d_nhwc": Model((_node("Conv", "x0 x1"),), _nchw, lambda y: y.transpose(0, 2, 3, 1)),
        "conv1d_ncw": Model((_node("Conv", "x0 x1"),)),
        "matmul_i8": Model((_node("MatMulInteger", "x0 x1"),)),
    }
)
"""Not matmul_bf16, which the CPU provider lacks."""


def model_bytes(model: Model, arrays: Sequence[Array], constant: int | None) -> bytes:
    """The model for operands like these, as a file has it; one of them may be part of it."""
    tensors = {f"x{index}": array for index, array in enumerate(arrays)}
    weights = {name: array for name, array in tensors.items() if name == f"x{constant}"}
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in tensors.items()
        if name not in weights
    ]
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    # Shape and type of the output are inferred.
    graph = helper.make_graph(model.nodes, "row", inputs, [onnx.ValueInfoProto(name="y")], initializers)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)
    return bytes(made.SerializeToString())


class OnnxProgram(LibraryProgram):
    def __init__(self, request: Mapping[str, Any], threads: int) -> None:
        if request["computation"] not in MODELS:
            raise CannotRun(f"no {request['computation']} in ONNX Runtime")
        self._model = model = MODELS[request["computation"]]
        arrays = model.arrange(operands(request))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        try:
            session = onnxruntime.InferenceSession(
                model_bytes(model, arrays, request["constant"]), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # its errors have no common base but this
            raise CannotRun(str(error).splitlines()[0][:200]) from error
        binding = session.io_binding()
        for each in session.get_inputs():
            array = arrays[int(each.name.removeprefix("x"))]
            binding.bind_ortvalue_input(each.name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
        [output] = decode_signature(request["signature"]).outputs
        [promised] = session.get_outputs()
        storage = np.empty(promised.shape, element(output.element_type).dtype)
        result = onnxruntime.OrtValue.ortvalue_from_numpy(storage)
        binding.bind_ortvalue_output("y", result)

        def compute() -> onnxruntime.OrtValue:
            session.run_with_iobinding(binding)
            return result

        super().__init__(compute, {"version": onnxruntime.__version__, "num_threads": str(threads)}, threads)

    def outputs(self) -> list[Array]:
        return [self._model.back(self._result.numpy())]
