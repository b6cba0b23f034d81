"""Dynamic int8 quantization of weight matrices and embedding tables.

A weight is stored as integers with one scale per row: per output feature of a matrix, per token of
a table. Activations are quantized at run time with one scale per tensor, and matrix products use
integers (``DynamicQuantizeLinear`` and ``MatMulInteger``, which onnxruntime fuses).

``quantize_dynamic`` of onnxruntime skips matrices that are transposed when the graph is loaded. It
would also store a table that is tied to the output matrix twice; here both read the same integers.
Products of activations (attention), cores of chains and inputs of other operators stay in float.
Keys would have to be quantized again at each step, which takes as long as the product.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

MIN_QUANTIZED_SIZE = 1024  # weights with fewer numbers stay in float
MAX_INT8 = 127


def quantize_model(model: ir.Model) -> None:
    """Quantize the matrices and tables of ``model``, in place."""
    graph = model.graph
    quantized_activations = dict[ir.Value, Any]()
    for weight in list(graph.initializers.values()):
        tensor = weight.const_value
        is_float_matrix = len(tensor.shape) == 2 and tensor.dtype == ir.DataType.FLOAT
        if is_float_matrix and tensor.size >= MIN_QUANTIZED_SIZE:
            _quantize_weight(graph, weight, quantized_activations)
    graph.sort()
    RemoveUnusedNodesPass()(model)


def _quantize_weight(graph: ir.Graph, weight: ir.Value,
                     quantized_activations: dict[ir.Value, Any]) -> None:
    """Replace ``weight`` by integers in the nodes that support them.

    ``quantized_activations`` maps activations to their quantized values, which are reused.
    """
    # x Wᵀ, and x Wᵀ + b
    transposed = [value for node, _ in weight.uses() if node.op_type == "Transpose"
                  for value in node.outputs]
    products = [node for value in transposed
                for node, index in value.uses() if node.op_type == "MatMul" and index == 1]
    products += [node for node, index in weight.uses()
                 if node.op_type == "Gemm" and index == 1
                 and node.attributes.get_int("transB", 0) == 1]
    lookups = [node for node, index in weight.uses() if node.op_type == "Gather" and index == 0
               and node.attributes.get_int("axis", 0) == 0]
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
        if x not in quantized_activations:
            quantized_activations[x] = tape.op_multi_out("DynamicQuantizeLinear", [x],
                                                         num_outputs=3)
        quantized, unit, zero = quantized_activations[x]
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
    for node, index in weight.uses():
        if node not in lookups and any(out.uses() or out.is_graph_output() for out in node.outputs):
            node.replace_input_with(
                index, tape.op("DequantizeLinear", [integers, scale], {"axis": 0}))


def _redirect_output(node: ir.Node, value: ir.Value) -> None:
    """Replace the output of ``node`` by ``value``, including its name."""
    (output,) = node.outputs
    value.name = output.name
    output.name = f"{output.name}.float"
    value.shape = output.shape
    value.type = output.type
    ir.convenience.replace_all_uses_with(output, value, replace_graph_outputs=True)
