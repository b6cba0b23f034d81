"""Contents of a CTranslate2 model: variables and scalars.

Variables are expressions of the weights.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from scalesearch.blocks.core import Size
from scalesearch.lowering import tensor_expressions
from scalesearch.lowering.tensor_expressions import TensorExpression


@dataclass(frozen=True)
class RuntimeVariable:
    """A variable of the exported model.

    Attributes:
        name: name in the runtime, for example ``encoder/layer_0/ffn/linear_0/weight``.
        shape: (rows, columns) or (features,).
        expression: its values as an expression of the weights.
        is_quantized: whether quantization changes its type: matrices of linear maps and tables.
    """

    name: str
    shape: tuple[Size, ...]
    expression: TensorExpression
    is_quantized: bool = False

    @property
    def sharing_key(self) -> Hashable:
        """Sharing key: variables with equal keys and shapes have equal values."""
        return tensor_expressions.sharing_key(self.expression)


@dataclass
class VariablePlan:
    """All variables and scalars of an exported model; they determine its size.

    If several variables have the same sharing key and shape, the first one by name is stored and
    the others are aliases. Bytes of a stored variable with N numbers in R rows:

    ====================  ==================================================  ==================
    quantization          quantized variables                                 other variables
    ====================  ==================================================  ==================
    int8                  N, and a variable NAME_scale with R float32         4 N
    int16                 2 N, and a scalar NAME_scale (float32)              4 N
    bf16                  2 N                                                 2 N
    none                  4 N                                                 4 N
    ====================  ==================================================  ==================

    ``model.bin`` has further bytes: per stored variable the length of its name, 8 bytes and 4 bytes
    per dimension; per alias the length of both names and 6 bytes; about 40 bytes per scalar.

    Attributes:
        variables: the variables.
        scalars: numbers by name. A bool or an activation is int8, a count is int16 or int32, a
            scale is float32.
    """

    variables: list[RuntimeVariable] = field(default_factory=list)
    scalars: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, shape: tuple[Size, ...], source: TensorExpression | None,
            is_quantized: bool = False) -> None:
        """Add a variable, unless ``source`` is None."""
        if source is not None:
            self.variables.append(RuntimeVariable(name, shape, source, is_quantized))
