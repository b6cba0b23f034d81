"""Count params, MACs and cached bytes of Hugging Face models, for a comparison with their configurations.

    python benchmarks/huggingface.py       # writes benchmarks/huggingface.json

Modules are built on the meta device, without weights, so the largest models need no memory. MACs are half
of the FLOPs of PyTorch's counter, of batches of one text: a forward pass over SOURCE + TARGET tokens with
logits of TARGET tokens, and TARGET steps of decoding with a cache after a source of SOURCE tokens. Bytes are
those of the tensors in the cache after decoding. ``tools/results.py`` compares the numbers with those of
scalesearch.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_suffix(".json")
SOURCE = 12
TARGET = 4


def bart(width: int, layers: int, heads: int, hidden: int, vocab: int, positions: int,
         **others: Any) -> dict[str, Any]:
    """Return a configuration with the names of BART and equal stacks."""
    return {"d_model": width, "encoder_layers": layers, "decoder_layers": layers,
            "encoder_attention_heads": heads, "decoder_attention_heads": heads,
            "encoder_ffn_dim": hidden, "decoder_ffn_dim": hidden, "vocab_size": vocab,
            "max_position_embeddings": positions, **others}


def t5(width: int, layers: int, heads: int, hidden: int, vocab: int,
       **others: Any) -> dict[str, Any]:
    """Return a configuration with the names of T5."""
    return {"d_model": width, "num_layers": layers, "num_decoder_layers": layers,
            "num_heads": heads, "d_ff": hidden, "d_kv": 64, "vocab_size": vocab, **others}


def gpt2(width: int, layers: int, heads: int) -> dict[str, Any]:
    """Return a configuration of GPT-2."""
    return {"n_embd": width, "n_layer": layers, "n_head": heads, "vocab_size": 50257,
            "n_positions": 1024}


def decoder(width: int, layers: int, heads: int, hidden: int, vocab: int,
            **others: Any) -> dict[str, Any]:
    """Return a configuration with the names of most decoder-only models."""
    return {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads,
            "intermediate_size": hidden, "vocab_size": vocab, **others}


def opt(width: int, layers: int, heads: int, **others: Any) -> dict[str, Any]:
    """Return a configuration of OPT."""
    return {"word_embed_proj_dim": width, **decoder(width, layers, heads, 0, 50272),
            "ffn_dim": 4 * width, "max_position_embeddings": 2048, **others}


def bloom(width: int, layers: int, heads: int) -> dict[str, Any]:
    """Return a configuration of Bloom."""
    return {"hidden_size": width, "n_layer": layers, "n_head": heads, "vocab_size": 250880}


def bert(width: int, layers: int, heads: int, vocab: int, **others: Any) -> dict[str, Any]:
    """Return a configuration of BERT."""
    return decoder(width, layers, heads, 4 * width, vocab, **others)


def distilbert(width: int, layers: int, heads: int, vocab: int) -> dict[str, Any]:
    """Return a configuration of DistilBERT."""
    return {"dim": width, "n_layers": layers, "n_heads": heads, "hidden_dim": 4 * width,
            "vocab_size": vocab, "max_position_embeddings": 512}


def classifier(name: str, classes: int) -> dict[str, Any]:
    """Return the entries of a classifier of texts."""
    return {"architectures": [f"{name}ForSequenceClassification"], "num_labels": classes}


def mixtral(width: int, layers: int, heads: int, hidden: int, kv: int) -> dict[str, Any]:
    """Return a configuration of Mixtral."""
    return decoder(width, layers, heads, hidden, 32000, num_key_value_heads=kv,
                   num_local_experts=8, num_experts_per_tok=2)


MASKED_TYPES = ("bert", "roberta", "xlm-roberta", "camembert", "distilbert")
GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
ROBERTA = {"max_position_embeddings": 514, "type_vocab_size": 1}
NEW_FALCON = {"new_decoder_architecture": True, "bias": False, "parallel_attn": True}
# Three sizes per model type: those of released models, in the words of their configurations.
MODELS: list[tuple[str, str, dict[str, Any]]] = [
    ("marian", "opus-mt", bart(512, 6, 8, 2048, 58101, 512, scale_embedding=True)),
    ("marian", "opus-mt-tc-big", bart(1024, 6, 16, 4096, 57829, 1024, scale_embedding=True)),
    ("marian", "tiny", bart(256, 2, 8, 1536, 32001, 512, scale_embedding=True)),
    ("m2m_100", "m2m100-418M", bart(1024, 12, 16, 4096, 128112, 1024, activation_function="relu",
                                    scale_embedding=True)),
    ("m2m_100", "nllb-200-600M", bart(1024, 12, 16, 4096, 256206, 1024, activation_function="relu",
                                      scale_embedding=True)),
    ("m2m_100", "nllb-200-3.3B", bart(2048, 24, 16, 8192, 256206, 1024, activation_function="relu",
                                      scale_embedding=True)),
    ("bart", "bart-base", bart(768, 6, 12, 3072, 50265, 1024)),
    ("bart", "bart-large", bart(1024, 12, 16, 4096, 50265, 1024)),
    ("bart", "distilbart-6-6", bart(1024, 6, 16, 4096, 50265, 1024)),
    ("mbart", "mbart-large-cc25", bart(1024, 12, 16, 4096, 250027, 1024, scale_embedding=True)),
    ("mbart", "mbart-large-50", bart(1024, 12, 16, 4096, 250054, 1024, scale_embedding=True)),
    ("mbart", "half", bart(512, 6, 8, 2048, 250027, 1024, scale_embedding=True)),
    ("pegasus", "pegasus-large", bart(1024, 16, 16, 4096, 96103, 512, activation_function="relu",
                                      scale_embedding=True)),
    ("pegasus", "distill-16-4", {**bart(1024, 16, 16, 4096, 96103, 512, scale_embedding=True,
                                        activation_function="relu"), "decoder_layers": 4}),
    ("pegasus", "base", bart(768, 12, 12, 3072, 96103, 512, activation_function="relu")),
    ("t5", "t5-small", t5(512, 6, 8, 2048, 32128)), ("t5", "t5-base", t5(768, 12, 12, 3072, 32128)),
    ("t5", "flan-t5-large", t5(1024, 24, 16, 2816, 32128, **GATED)),
    ("mt5", "mt5-small", t5(512, 8, 6, 1024, 250112, **GATED)),
    ("mt5", "mt5-base", t5(768, 12, 12, 2048, 250112, **GATED)),
    ("mt5", "mt5-large", t5(1024, 24, 16, 2816, 250112, **GATED)),
    ("gpt2", "gpt2", gpt2(768, 12, 12)), ("gpt2", "gpt2-medium", gpt2(1024, 24, 16)),
    ("gpt2", "gpt2-xl", gpt2(1600, 48, 25)),
    ("opt", "opt-125m", opt(768, 12, 12)),
    ("opt", "opt-350m", opt(1024, 24, 16, word_embed_proj_dim=512, do_layer_norm_before=False)),
    ("opt", "opt-6.7b", opt(4096, 32, 32)),
    ("gpt_neox", "pythia-70m", decoder(512, 6, 8, 2048, 50304)),
    ("gpt_neox", "pythia-1.4b", decoder(2048, 24, 16, 8192, 50304)),
    ("gpt_neox", "gpt-neox-20b", decoder(6144, 44, 64, 24576, 50432)),
    ("falcon", "falcon-rw-1b", {**decoder(2048, 24, 32, 8192, 50304), "multi_query": False, "bias": True,
                                "alibi": True, "parallel_attn": False}),
    ("falcon", "falcon-7b", decoder(4544, 32, 71, 18176, 65024, bias=False)),
    ("falcon", "falcon-40b", decoder(8192, 60, 128, 32768, 65024, num_kv_heads=8, **NEW_FALCON)),
    ("bloom", "bloom-560m", bloom(1024, 24, 16)), ("bloom", "bloom-1b7", bloom(2048, 24, 16)),
    ("bloom", "bloom-7b1", bloom(4096, 30, 32)),
    ("llama", "llama-2-7b", decoder(4096, 32, 32, 11008, 32000)),
    ("llama", "llama-3-8b", decoder(4096, 32, 32, 14336, 128256, num_key_value_heads=8)),
    ("llama", "llama-3.2-1b", decoder(2048, 16, 32, 8192, 128256, num_key_value_heads=8, head_dim=64,
                                      tie_word_embeddings=True)),
    ("mistral", "mistral-7b", decoder(4096, 32, 32, 14336, 32000, num_key_value_heads=8)),
    ("mistral", "mistral-nemo", decoder(5120, 40, 32, 14336, 131072, num_key_value_heads=8,
                                        head_dim=128)),
    ("mistral", "ministral-8b", decoder(4096, 36, 32, 12288, 131072, num_key_value_heads=8, head_dim=128)),
    ("qwen2", "qwen2.5-0.5b", decoder(896, 24, 14, 4864, 151936, num_key_value_heads=2,
                                      tie_word_embeddings=True)),
    ("qwen2", "qwen2.5-1.5b", decoder(1536, 28, 12, 8960, 151936, num_key_value_heads=2,
                                      tie_word_embeddings=True)),
    ("qwen2", "qwen2.5-7b", decoder(3584, 28, 28, 18944, 152064, num_key_value_heads=4)),
    ("qwen3", "qwen3-0.6b", decoder(1024, 28, 16, 3072, 151936, num_key_value_heads=8, head_dim=128,
                                    tie_word_embeddings=True)),
    ("qwen3", "qwen3-4b", decoder(2560, 36, 32, 9728, 151936, num_key_value_heads=8, head_dim=128,
                                  tie_word_embeddings=True)),
    ("qwen3", "qwen3-8b", decoder(4096, 36, 32, 12288, 151936, num_key_value_heads=8, head_dim=128)),
    ("gemma", "gemma-2b", decoder(2048, 18, 8, 16384, 256000, num_key_value_heads=1, head_dim=256)),
    ("gemma", "gemma-7b", decoder(3072, 28, 16, 24576, 256000, num_key_value_heads=16, head_dim=256)),
    ("gemma", "half", decoder(1024, 9, 4, 8192, 256000, num_key_value_heads=1, head_dim=256)),
    ("gemma2", "gemma-2-2b", decoder(2304, 26, 8, 9216, 256000, num_key_value_heads=4, head_dim=256)),
    ("gemma2", "gemma-2-9b", decoder(3584, 42, 16, 14336, 256000, num_key_value_heads=8, head_dim=256)),
    ("gemma2", "gemma-2-27b", decoder(4608, 46, 32, 36864, 256000, num_key_value_heads=16, head_dim=128)),
    ("gemma3_text", "gemma-3-270m", decoder(640, 18, 4, 2048, 262144, num_key_value_heads=1, head_dim=256)),
    ("gemma3_text", "gemma-3-1b", decoder(1152, 26, 4, 6912, 262144, num_key_value_heads=1, head_dim=256)),
    ("gemma3_text", "gemma-3-4b", decoder(2560, 34, 8, 10240, 262208, num_key_value_heads=4, head_dim=256)),
    ("phi3", "phi-3-mini", decoder(3072, 32, 32, 8192, 32064, pad_token_id=0)),
    ("phi3", "phi-3-medium", decoder(5120, 40, 40, 17920, 32064, num_key_value_heads=10, pad_token_id=0)),
    ("phi3", "phi-4", decoder(5120, 40, 40, 17920, 100352, num_key_value_heads=10, pad_token_id=0)),
    ("olmo2", "olmo-2-1b", decoder(2048, 16, 16, 8192, 100352)),
    ("olmo2", "olmo-2-7b", decoder(4096, 32, 32, 11008, 100352)),
    ("olmo2", "olmo-2-13b", decoder(5120, 40, 40, 13824, 100352)),
    ("mixtral", "mixtral-8x7b", mixtral(4096, 32, 32, 14336, 8)),
    ("mixtral", "mixtral-8x22b", mixtral(6144, 56, 48, 16384, 8)),
    ("mixtral", "small", mixtral(512, 6, 8, 1024, 4)),
    ("bert", "bert-base-uncased", bert(768, 12, 12, 30522, max_position_embeddings=512)),
    ("bert", "bert-large-uncased", bert(1024, 24, 16, 30522, max_position_embeddings=512)),
    ("bert", "bert-tiny", bert(128, 2, 2, 30522, max_position_embeddings=512)),
    ("roberta", "roberta-base", bert(768, 12, 12, 50265, **ROBERTA)),
    ("roberta", "roberta-large", bert(1024, 24, 16, 50265, **ROBERTA)),
    ("roberta", "distilroberta-base", bert(768, 6, 12, 50265, **ROBERTA)),
    ("xlm-roberta", "xlm-roberta-base", bert(768, 12, 12, 250002, **ROBERTA)),
    ("xlm-roberta", "xlm-roberta-large", bert(1024, 24, 16, 250002, **ROBERTA)),
    ("xlm-roberta", "half", bert(384, 12, 6, 250002, **ROBERTA)),
    ("camembert", "camembert-base", bert(768, 12, 12, 32005, **ROBERTA)),
    ("camembert", "camembert-large", bert(1024, 24, 16, 32005, **ROBERTA)),
    ("camembert", "half", bert(384, 6, 6, 32005, **ROBERTA)),
    ("distilbert", "distilbert-base", distilbert(768, 6, 12, 30522)),
    ("distilbert", "multilingual", distilbert(768, 6, 12, 119547)),
    ("distilbert", "half", distilbert(384, 3, 6, 30522)),
    ("bert", "bert-base, 2 classes", bert(768, 12, 12, 30522, max_position_embeddings=512,
                                          **classifier("Bert", 2))),
    ("roberta", "roberta-base, 3 classes", bert(768, 12, 12, 50265, **ROBERTA,
                                                **classifier("Roberta", 3))),
    ("distilbert", "distilbert-base, 2 classes", {**distilbert(768, 6, 12, 30522),
                                                  **classifier("DistilBert", 2)})]


def model_class(config: Any) -> Any:
    """Return the class of transformers with the output layer for tokens, or for classes."""
    import transformers

    if config.is_encoder_decoder:
        return transformers.AutoModelForSeq2SeqLM
    if next(iter(config.architectures or ()), "").endswith("ForSequenceClassification"):
        return transformers.AutoModelForSequenceClassification
    return (transformers.AutoModelForMaskedLM if config.model_type in MASKED_TYPES
            else transformers.AutoModelForCausalLM)


def count(model_type: str, sizes: dict[str, Any]) -> dict[str, int]:
    """Count trainable params, MACs of both passes, and bytes of the cache, with transformers.

    Encoder-only models have no cache, and logits of all tokens.
    """
    import torch
    import transformers
    from torch.utils.flop_counter import FlopCounterMode

    config = transformers.AutoConfig.for_model(model_type, **{"pad_token_id": 0, **sizes})
    config._experts_implementation = "batched_mm"  # only the experts that a token uses
    kind = model_class(config)
    is_masked = model_type in MASKED_TYPES
    with torch.device("meta"), torch.no_grad():
        model = kind.from_config(config, attn_implementation="eager").eval()
        if config.tie_word_embeddings and sizes.get("tie_word_embeddings") is False:
            # The class of T5 ignores the entry; checkpoints with it have an output of their own.
            model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))
        tokens = torch.ones(1, SOURCE + TARGET, dtype=torch.long)
        with FlopCounterMode(display=False) as forward:
            if config.is_encoder_decoder:
                model(input_ids=tokens[:, :SOURCE], decoder_input_ids=tokens[:, :TARGET],
                      use_cache=False)
            elif is_masked:
                model(tokens)
            else:
                model(tokens, attention_mask=tokens, use_cache=False, logits_to_keep=TARGET)
        params = sum(p.numel() for p in model.parameters() if p.requires_grad)
        if is_masked:
            return {"params": params, "macs_forward": forward.get_total_flops() // 2}
        with FlopCounterMode(display=False) as decode:
            cache: Any = None
            if config.is_encoder_decoder:
                states = model.get_encoder()(tokens[:, :SOURCE])
                for _ in range(TARGET):
                    cache = model(encoder_outputs=states, decoder_input_ids=tokens[:, :1],
                                  past_key_values=cache, use_cache=True).past_key_values
            else:
                for first, end in [(0, SOURCE + 1),
                                   *((n - 1, n) for n in range(SOURCE + 2, SOURCE + TARGET + 1))]:
                    cache = model(tokens[:, first:end], attention_mask=tokens[:, :end],
                                  past_key_values=cache, use_cache=True,
                                  logits_to_keep=1).past_key_values
    layers = ([*cache.self_attention_cache.layers, *cache.cross_attention_cache.layers]
              if config.is_encoder_decoder else cache.layers)
    return {"params": params,
            "macs_forward": forward.get_total_flops() // 2,
            "macs_decode": decode.get_total_flops() // 2,
            "cache": sum(tensor.nbytes for layer in layers for tensor in (layer.keys, layer.values))}


def explained_differences(config: Mapping[str, Any]) -> tuple[int, float, str]:
    """Return differences that the implementation in transformers explains.

    Returns:
        MACs of transformers minus MACs of scalesearch, bytes of the cache of transformers per byte
        of scalesearch, and the reason; 0, 1 and an empty text if nothing differs.
    """
    width = config.get("hidden_size", 0)
    rank = config.get("word_embed_proj_dim", width)
    if rank != width:
        return SOURCE * width * rank, 1, "maps positions without logits, too"
    if config.get("new_decoder_architecture"):
        repeats = config["num_attention_heads"] / config["num_kv_heads"]
        return 0, repeats, "caches repeated keys and values"
    return 0, 1, ""


def unexplained_differences(model: Mapping[str, Any]) -> dict[str, int]:
    """Return the numbers of transformers minus those of scalesearch and all known differences."""
    import scalesearch as ss

    space = ss.from_huggingface(model["config"])
    architecture = space.architecture()
    listed = sum(difference.params for difference in space.not_expressed)
    if "macs_decode" not in model:
        costs = architecture.cost(source=SOURCE + TARGET, target=SOURCE + TARGET)
        return {"params": model["params"] - costs["params.total"] - listed,
                "macs_forward": model["macs_forward"] - costs["macs.total"]}
    forward = architecture.cost(source=SOURCE, target=TARGET)
    decode = architecture.cost("decode", source=SOURCE, target=TARGET)
    macs, cache_factor, _ = explained_differences(model["config"])
    return {"params": model["params"] - forward["params.total"] - listed,
            "macs_forward": model["macs_forward"] - forward["macs.total"] - macs,
            "macs_decode": model["macs_decode"] - decode["macs.total"] - macs,
            "cache": model["cache"] - int(decode["memory.cache"] * cache_factor)}


def rows() -> Iterator[dict[str, Any]]:
    """Yield name, configuration and counts of each model."""
    for model_type, name, sizes in MODELS:
        print(model_type, name, flush=True)
        yield {"name": name, "config": {"model_type": model_type, **sizes},
               **count(model_type, sizes)}


if __name__ == "__main__":
    import transformers

    RESULTS.write_text(json.dumps({"transformers": transformers.__version__,
                                   "source": SOURCE, "target": TARGET,
                                   "models": list(rows())}, indent=1) + "\n", "utf-8")
