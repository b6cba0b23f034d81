"""No feed-forward network: layers of attention alone (PartialFormer's Table 7, "pure attention")."""

from scalesearch.blocks.core import Block, Shape, Site, Size, block
from scalesearch.blocks.ffn.registry import ffn
from scalesearch.blocks.sites import DENSE


@ffn("none")
@block
class NoFFN(Block):
    """Stands for an absent sub-layer: a layer that is given it has neither the network nor its norm."""

    d: Size
    over: Shape
    site: Site = DENSE
