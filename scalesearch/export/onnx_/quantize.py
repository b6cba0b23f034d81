"""Dynamic int8 quantization of matrices and tables.

A weight becomes an integer for each number and a scale for each row: for each output feature of a
matrix, each token of a table. Activations are quantized as they come, with one scale for all of a
tensor, and products run on integers (``DynamicQuantizeLinear`` and ``MatMulInteger``, which
onnxruntime fuses). Its own ``quantize_dynamic`` passes over matrices that are transposed when the
graph is loaded, and would hold a table that is also the output matrix twice; here both read the
same integers. Products of activations (attention), cores of chains and what other operators read
stay in float: keys would have to be quantized anew at each step, which takes as long as the
product.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

MIN_QUANTIZED_SIZE = 1024  # numbers of a weight that is quantized
MAX_INT8 = 127


def quantize_model(model: ir.Model) -> None:
    """Quantize the matrices and tables of ``model``, in place."""
    graph = model.graph
    seen = dict[ir.Value, Any]()
    for weight in list(graph.initializers.values()):
        tensor = weight.const_value
        if len(tensor.shape) == 2 and tensor.size >= MIN_QUANTIZED_SIZE and tensor.dtype == ir.DataType.FLOAT:
            _quantize_weight(graph, weight, seen)
    graph.sort()
    RemoveUnusedNodesPass()(model)


def _quantize_weight(graph: ir.Graph, weight: ir.Value, seen: dict[ir.Value, Any]) -> None:
    """Let what can do so read integers in place of ``weight``; ``seen`` holds activations that are quantized."""
    products = _matrix_product_nodes(weight)
    lookups = [node for node, at in weight.uses() if node.op_type == "Gather" and at == 0]
    if not products and not lookups:
        return
    tape = ir.tape.Tape(graph)
    numbers = weight.const_value.numpy()
    scales = (np.maximum(np.abs(numbers).max(1), np.finfo(np.float32).tiny)
              / MAX_INT8).astype(np.float32)
    integers = tape.initializer(ir.tensor(np.rint(numbers / scales[:, None]).astype(np.int8)),
                                f"{weight.name}.int8")
    scale = tape.initializer(ir.tensor(scales), f"{weight.name}.scale")
    for node in products:
        x, _, *bias = node.inputs
        if x not in seen:
            seen[x] = tape.op_multi_out("DynamicQuantizeLinear", [x], num_outputs=3)
        quantized, unit, zero = seen[x]
        matrix = tape.op("Transpose", [integers], {"perm": [1, 0]})
        product = tape.op("MatMulInteger", [quantized, matrix, zero])
        product = tape.op("Cast", [product], {"to": int(ir.DataType.FLOAT)})
        product = tape.op("Mul", [product, tape.op("Mul", [unit, scale])])
        _redirect_output(node, tape.op("Add", [product, *bias]) if bias else product)
    for node in lookups:
        rows = tape.op("Cast", [tape.op("Gather", [integers, node.inputs[1]])],
                       {"to": int(ir.DataType.FLOAT)})
        last = tape.op("Constant", [], {"value_ints": [-1]})
        unit = tape.op("Unsqueeze", [tape.op("Gather", [scale, node.inputs[1]]), last])
        _redirect_output(node, tape.op("Mul", [rows, unit]))
    for node, at in weight.uses():
        if node not in lookups and any(out.uses() or out.is_graph_output() for out in node.outputs):
            node.replace_input_with(at, tape.op("DequantizeLinear", [integers, scale], {"axis": 0}))


def _matrix_product_nodes(weight: ir.Value) -> list[ir.Node]:
    """Nodes that compute x Wᵀ, or x Wᵀ + b."""
    flipped = [value for node, _ in weight.uses() if node.op_type == "Transpose"
               for value in node.outputs]
    found = [node for value in flipped
             for node, at in value.uses() if node.op_type == "MatMul" and at == 1]
    return found + [node for node, at in weight.uses() if node.op_type == "Gemm" and at == 1]


def _redirect_output(node: ir.Node, value: ir.Value) -> None:
    """Let ``value`` be what ``node`` made."""
    (made,) = node.outputs
    value.name = made.name
    made.name = f"{made.name}.float"
    value.shape = made.shape
    value.type = made.type
    ir.convenience.replace_all_uses_with(made, value, replace_graph_outputs=True)
