"""Names of keys in other tools and papers. The error for such a key suggests the key of a space."""

from dataclasses import replace

from scalesearch.space.schema.types import SchemaField, SchemaGroup

# By the last name of a key; `depth` is that of encoder and decoder.
SYNONYMS: dict[str, tuple[str, ...]] = {
    "width": ("d_model", "hidden_size", "model_dim", "embed_dim", "n_embd", "embedding_dim", "dim",
              "emb_dim"), "vocab": ("vocab_size", "vocabulary", "vocabulary_size", "n_vocab"),
    "mixer": ("token_mixer", "attention_type", "attn_type", "sequence_mixer"),
    "depth": ("layers", "num_layers", "n_layers", "n_layer", "num_hidden_layers", "encoder_layers",
              "decoder_layers", "num_encoder_layers", "num_decoder_layers", "blocks"),
    "heads": ("num_heads", "n_head", "n_heads", "nhead", "attention_heads", "num_attention_heads",
              "encoder_attention_heads", "decoder_attention_heads"),
    "head_dim": ("d_head", "d_k", "d_kv", "head_size", "dim_head"),
    "key_value_heads": ("num_key_value_heads", "n_kv_heads", "kv_heads", "num_kv_heads",
                        "multi_query"),
    "hidden": ("d_ff", "ffn_dim", "d_inner", "intermediate_size", "dim_feedforward", "hidden_dim",
               "ff_size", "encoder_ffn_embed_dim", "decoder_ffn_embed_dim", "mlp_dim", "n_inner"),
    "norm": ("normalize_before", "pre_norm", "prenorm", "layer_norm", "norm_first",
             "normalisation"),
    "ffn": ("feed_forward", "feedforward", "mlp", "activation", "activation_fn", "ff"),
    "pg": ("partial", "partial_ffn", "partial_gated_ffn", "partialformer", "head_ffn"),
    "model": ("architecture", "arch", "model_type", "type"),
    "tie": ("tie_weights", "tie_embeddings", "share_all_embeddings", "tied", "tie_word_embeddings",
            "tied_embeddings", "share_decoder_input_output_embed", "tied_softmax"),
    "positions": ("positional_encoding", "position_embedding", "pos_encoding", "learned_pos",
                  "position_embeddings"),
    "max_length": ("max_position_embeddings", "max_positions", "max_len", "n_positions",
                   "block_size"),
    "relative_positions": ("relative_position", "rpr", "relative_attention"),
    "rotary": ("rope", "rotary_positions", "rotary_embeddings", "rotary_embedding", "use_rope"),
    "norm_kind": ("norm_type", "rms_norm", "rmsnorm", "use_rmsnorm", "normalization_type"),
    "relative_clip": ("max_relative_position", "max_relative_positions", "clip_distance"),
    "share": ("sharing", "weight_sharing", "share_layers", "parameter_sharing", "tie_layers"),
    "adapt": ("adapter", "adapters", "lora", "layer_adaptation"),
    "low_rank": ("lowrank", "factorized", "factorised_matrices"),
    "tensor_chain": ("tensor_train", "mpo", "tensor_network")}


def with_synonyms(group: SchemaGroup, name: str = "") -> SchemaGroup:
    """``group`` with the synonyms of each key beneath it."""
    fields = {key: _with_synonyms_of(key, child) for key, child in group.fields.items()}
    variants = {key: with_synonyms(inner) for key, inner in group.variants.items()}
    return replace(group, fields=fields, variants=variants,
                   synonyms=(*group.synonyms, *SYNONYMS.get(name, ())))


def _with_synonyms_of(name: str, child: SchemaField | SchemaGroup) -> SchemaField | SchemaGroup:
    if isinstance(child, SchemaGroup):
        return with_synonyms(child, name)
    return replace(child, synonyms=(*child.synonyms, *SYNONYMS.get(name, ())))
