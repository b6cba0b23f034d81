"""What an artifact of CTranslate2 holds: its variables, each an expression over our weights, and its scalars."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from scalesearch.blocks.core import Size
from scalesearch.lowering import tensor_expressions
from scalesearch.lowering.tensor_expressions import TensorExpression


@dataclass(frozen=True)
class RuntimeVariable:
    """A variable of the artifact.

    Attributes:
        name: in the runtime's words, such as ``encoder/layer_0/ffn/linear_0/weight``.
        shape: (rows, columns) or (features,).
        expression: the expression over our weights that it holds.
        is_quantized: a matrix of linear maps and tables, of which a quantization makes another
            type.
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
    """All variables of an artifact, and its scalars.

    Bytes follow from it. Of the variables with one ``key`` and shape the first by name is stored,
    the others are its aliases. A stored one of N numbers in R rows has, if ``quantized``, N bytes
    in int8 and a variable NAME_scale of R float32; in int16 2 N, and a scalar NAME_scale of
    float32; in bf16 2 N, in none 4 N. Any other has 4 N bytes, in bf16 2 N. Beside its numbers
    ``model.bin`` has for each stored one its name's characters + 8 bytes and 4 for each dimension,
    for each alias the characters of both names + 6; and some 40 bytes a scalar.

    Attributes:
        scalars: name to a number: a bool or an activation is int8, a count is int16 or int32, a
            scale is float32.
    """

    variables: list[RuntimeVariable] = field(default_factory=list)
    scalars: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, shape: tuple[Size, ...], source: TensorExpression | None,
            is_quantized: bool = False) -> None:
        """Adds a variable, if there is something for it to hold."""
        if source is not None:
            self.variables.append(RuntimeVariable(name, shape, source, is_quantized))
