"""No feed-forward network: layers of attention alone (PartialFormer's Table 7, "pure attention")."""

from typing import ClassVar

from scalesearch.blocks.core import block
from scalesearch.blocks.ffn.base import FFN, ffn


@ffn("none")
@block
class NoFFN(FFN):
    """An absent sub-layer."""

    empty: ClassVar[bool] = True
