"""Specimens of embeddings, layers and stacks."""

from __future__ import annotations

from random import Random

from scalesearch.blocks.core import KEYS, MEMORY, SRC, SRC_KEYS, TGT, Repeat
from scalesearch.blocks.embed import (
    POSITIONS,
    AdaptiveOutput,
    AdaptiveTable,
    FactorisedTable,
    SoftPOS,
    TokenEmbedding,
)
from scalesearch.blocks.ffn import FFNS
from scalesearch.blocks.layers import NORMS, DecoderLayer, EncoderLayer
from scalesearch.blocks.leaves import Embedding
from scalesearch.blocks.mixers.scores import GlobalScores
from scalesearch.blocks.solvers import SOLVERS
from scalesearch.blocks.stacks import Stack, WaistedStack
from scalesearch.testing.attention import attention_block, ffn_block
from scalesearch.testing.specimen import Specimen, size, specimen


@specimen("token_embedding")
def token_embedding(rng: Random) -> Specimen:
    """Draw tokens' vectors with positions of any kind."""
    d = size(rng)
    tables = [Embedding(d, (SRC,)), FactorisedTable(d, 3, (SRC,), Embedding(3, (SRC,))), bands(rng, d)]
    block = TokenEmbedding(d, (SRC,), rng.choice(tables), rng.choice(POSITIONS), 8)
    return Specimen(block, ((SRC,), (SRC,)), ids=True)


def bands(rng: Random, d: int) -> AdaptiveTable:
    """Draw a table of up to three bands, some perhaps beyond the vocabulary."""
    cutoffs = tuple(sorted(rng.sample(range(1, 15), 2)))
    return AdaptiveTable(d, cutoffs, rng.randint(2, 4), over=(SRC,))


@specimen("adaptive_output")
def adaptive_output(rng: Random) -> Specimen:
    """Draw an adaptive softmax."""
    d = size(rng)
    drawn = bands(rng, d)
    return Specimen(AdaptiveOutput(d, drawn.cutoffs, drawn.factor), ((TGT, d),))


@specimen("soft_positions")
def soft_positions(rng: Random) -> Specimen:
    """Draw an H-SoftPOS of one to three levels."""
    levels, width = rng.randint(1, 3), rng.randint(1, 4)
    left = rng.randint(1, 6)
    d = left + (2 * levels - 1) * width
    roles = rng.randint(1, min(left, width))
    block = SoftPOS(d, (SRC,), Embedding(left, (SRC,)), levels, width, roles, rng.choice(POSITIONS), 8)
    return Specimen(block, ((SRC,), (SRC,)), ids=True)


def encoder_layer_block(rng: Random) -> EncoderLayer:
    """Draw an encoder layer."""
    attention = attention_block(rng, size(rng), (SRC, SRC, SRC), decoder=False)
    ffn = ffn_block(rng, rng.choice(list(FFNS)), attention.d, SRC)
    return EncoderLayer(attention, ffn, rng.choice(NORMS))


@specimen("encoder_layer")
def encoder_layer(rng: Random) -> Specimen:
    """Draw an encoder layer with its input."""
    block = encoder_layer_block(rng)
    return Specimen(block, ((SRC, block.main.d), None, None))


@specimen("decoder_layer")
def decoder_layer(rng: Random) -> Specimen:
    """Draw a decoder layer, which may have no cross-attention, with its input and its memory."""
    d = size(rng)
    block = DecoderLayer(
        attention_block(rng, d, (TGT, TGT, KEYS)),
        attention_block(rng, d, (TGT, MEMORY, SRC_KEYS), cross=True) if rng.random() < 0.8 else None,
        ffn_block(rng, rng.choice(list(FFNS)), d, TGT),
        rng.choice(NORMS),
        rng.random() < 0.5,
    )
    return Specimen(block, ((TGT, d), None, None, (SRC, d), None, None))


@specimen("stack")
def stack(rng: Random) -> Specimen:
    """Draw a stack of up to three layers, its input and a scores bias."""
    layer = encoder_layer_block(rng)
    d, own = layer.main.d, layer.main.scores
    scores = GlobalScores(d, own.heads, size(rng), SRC, SRC, 0, False) if own and rng.random() < 0.5 else None
    block = Stack(
        Repeat(layer, rng.randint(1, 3)), scores, rng.random() < 0.5, rng.choice(list(SOLVERS)), rng.random() < 0.5
    )
    return Specimen(block, ((SRC, d), None, (1, SRC, SRC)))


@specimen("waisted_stack")
def waisted_stack(rng: Random) -> Specimen:
    """Draw a stack whose middle layers have another width."""
    layer, middle = encoder_layer_block(rng), encoder_layer_block(rng)
    block = WaistedStack(Repeat(layer, 1), Repeat(middle, rng.randint(1, 3)), Repeat(layer, 1), rng.random() < 0.5)
    return Specimen(block, ((SRC, layer.main.d), None, None))
