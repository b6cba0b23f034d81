"""Hugging Face configurations as spaces: keys, differences, and costs of the real modules."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import scalesearch as ss
from benchmarks.huggingface import (
    MASKED_TYPES,
    RESULTS,
    count,
    model_class,
    unexplained_differences,
)
from scalesearch.cli.cost import command as cost
from scalesearch.cli.import_ import command as import_
from scalesearch.cost import evaluate_cost, find_protocol, load_protocol
from scalesearch.errors import UserError
from scalesearch.spaces import Space, read_space
from scalesearch.spaces.huggingface import MODEL_TYPES, read_config
from tests.errors import refuses

BART = {"vocab_size": 160, "max_position_embeddings": 40, "d_model": 32, "encoder_layers": 2,
        "decoder_layers": 3, "encoder_attention_heads": 4, "decoder_attention_heads": 2,
        "encoder_ffn_dim": 64, "decoder_ffn_dim": 48, "scale_embedding": True}
FSMT = {"src_vocab_size": 160, "tgt_vocab_size": 120,
        **{name: size for name, size in BART.items() if name != "vocab_size"}}
T5 = {"vocab_size": 160, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2,
      "num_decoder_layers": 3, "num_heads": 4}
FALCON = {"vocab_size": 160, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
          "max_position_embeddings": 40}
LLAMA = {**FALCON, "intermediate_size": 80, "num_key_value_heads": 2, "head_dim": 16}
OPT = {**FALCON, "ffn_dim": 64, "word_embed_proj_dim": 32}
NEOX = {**FALCON, "intermediate_size": 64}
GPT2 = {"vocab_size": 160, "n_positions": 40, "n_embd": 32, "n_layer": 3, "n_head": 4}
BLOOM = {"vocab_size": 160, "hidden_size": 32, "n_layer": 3, "n_head": 4}
DISTILBERT = {"vocab_size": 160, "dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 64}
V1_1 = {"tie_word_embeddings": False, "feed_forward_proj": "gated-gelu"}
SEPARATE = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 120}
NEW_FALCON = {"new_decoder_architecture": True, "num_kv_heads": 2}
# Model type and sizes; the first of a type is also compared by MACs.
MODELS: list[tuple[str, dict[str, Any]]] = [
    *((name, BART) for name in ("marian", "m2m_100", "bart", "mbart", "pegasus")),
    *((name, {**BART, "tie_word_embeddings": False}) for name in ("marian", "bart", "m2m_100")),
    ("marian", {**BART, **SEPARATE}),
    ("marian", {**BART, **SEPARATE, "tie_word_embeddings": False}),
    ("fsmt", FSMT), ("fsmt", {**FSMT, "tgt_vocab_size": 160, "tie_word_embeddings": True}),
    ("t5", T5), ("t5", {**T5, **V1_1}), ("mt5", {**T5, **V1_1}),
    ("gpt2", GPT2), ("gpt2", {**GPT2, "n_inner": 48, "add_cross_attention": True}),
    ("opt", OPT), ("opt", {**OPT, "enable_bias": False}),
    ("opt", {**OPT, "layer_norm_elementwise_affine": False}),
    ("opt", {**OPT, "word_embed_proj_dim": 16, "do_layer_norm_before": False}),
    *((name, LLAMA) for name in ("llama", "mistral", "qwen3", "gemma", "gemma2", "gemma3_text",
                                 "mixtral")),
    *((name, {**LLAMA, "head_dim": 8}) for name in ("qwen2", "phi3", "olmo2")),
    *((name, {**LLAMA, "head_dim": 8, "tie_word_embeddings": True})
      for name in ("llama", "qwen2", "phi3", "olmo2", "mixtral")),
    ("llama", {**LLAMA, "attention_bias": True, "mlp_bias": True}),
    ("gemma3_text", {**LLAMA, "tie_word_embeddings": False}),
    ("gpt_neox", NEOX),
    ("gpt_neox", {**NEOX, "use_parallel_residual": False, "attention_bias": False}),
    ("falcon", FALCON), ("falcon", {**FALCON, "bias": True}), ("falcon", FALCON | NEW_FALCON),
    ("falcon", FALCON | NEW_FALCON | {"num_ln_in_parallel_attn": 1}),
    ("falcon", {**FALCON, "parallel_attn": False, "alibi": True, "multi_query": False}),
    ("bloom", BLOOM), ("bloom", {**BLOOM, "apply_residual_connection_post_layernorm": True}),
    *((name, NEOX) for name in ("bert", "roberta", "xlm-roberta", "camembert")),
    ("bert", {**NEOX, "type_vocab_size": 3, "tie_word_embeddings": False}),
    ("distilbert", DISTILBERT)]
CLASSIFIERS = [(name, {**sizes, "num_labels": 5, "architectures": ["ForSequenceClassification"]})
               for name, sizes in (("bert", NEOX), ("roberta", NEOX), ("distilbert", DISTILBERT))]
NUMBERED = [pytest.param(name, sizes, id=f"{name}-{number}")
            for number, (name, sizes) in enumerate([*MODELS, *CLASSIFIERS])]
FIRST = dict(reversed(MODELS))
SOURCE, TARGET = 7, 5
# Attention in windows that are shorter than the text: pattern of the type, another one, all layers.
WINDOWED = [("gemma3_text", {**LLAMA, "sliding_window": 4, "num_hidden_layers": 7}),
            ("gemma2", {**LLAMA, "sliding_window": 5}),
            ("qwen3", {**LLAMA, "sliding_window": 3, "use_sliding_window": True,
                       "max_window_layers": 1}), ("mistral", {**LLAMA, "sliding_window": 2})]
RUN = [pytest.param(name, sizes, id=f"{name}-{number}")
       for number, (name, sizes) in enumerate([*FIRST.items(), *WINDOWED, *CLASSIFIERS])]
GENERATING = [parameter for parameter in RUN if parameter.values[0] not in MASKED_TYPES]


def params_of(space: Space) -> int:
    """Params of a Hugging Face model, computed from the space and the listed differences."""
    total = evaluate_cost(space.single_architecture().block, load_protocol({}))["params.total"]
    return int(total) + sum(difference.params for difference in space.not_expressed)


@pytest.mark.parametrize(("name", "sizes"), NUMBERED)
def test_params_equal_those_of_the_module(name: str, sizes: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers", "5")
    import torch

    config = transformers.AutoConfig.for_model(name, **sizes, pad_token_id=0)
    with torch.device("meta"):
        module = model_class(config).from_config(config)
    assert params_of(ss.from_huggingface(config).definition) == sum(
        parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


@pytest.mark.parametrize(("name", "sizes"), RUN)
def test_macs_equal_those_of_the_module(name: str, sizes: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers", "5")
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    config = transformers.AutoConfig.for_model(name, **sizes, pad_token_id=0)
    eager = {"attn_implementation": "eager"}
    tokens = torch.ones(1, SOURCE + TARGET, dtype=torch.long)
    lengths = (SOURCE, TARGET)
    if name in MASKED_TYPES:
        module = model_class(config).from_config(config, **eager)
        inputs = {"input_ids": tokens}
        lengths = (SOURCE + TARGET, SOURCE + TARGET)  # logits of all tokens
    elif config.is_encoder_decoder:
        module = transformers.AutoModelForSeq2SeqLM.from_config(config, **eager)
        inputs = {"input_ids": tokens[:, :SOURCE], "decoder_input_ids": tokens[:, :TARGET]}
    else:
        config._experts_implementation = "eager"
        module = transformers.AutoModelForCausalLM.from_config(config, **eager)
        inputs = {"input_ids": tokens, "logits_to_keep": TARGET}
        if name in ("gpt2", "bloom", "falcon", "opt"):
            inputs["attention_mask"] = torch.ones_like(tokens)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module.eval()(**inputs, **({} if name in MASKED_TYPES else {"use_cache": False}))
    # transformers computes the scores of all keys, and hides those outside of windows.
    costs = evaluate_cost(ss.from_huggingface(config).definition.single_architecture().block,
                          replace(find_protocol("forward", *lengths), dense_windows=True))
    assert counter.get_total_flops() / 2 == costs["macs.total"]


@pytest.mark.parametrize(("name", "sizes"), GENERATING)
def test_cached_decoding_equals_that_of_the_module(name: str, sizes: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers", "5")
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    config = transformers.AutoConfig.for_model(name, **sizes, pad_token_id=0)
    tokens = torch.ones(1, SOURCE + TARGET, dtype=torch.long)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        if config.is_encoder_decoder:
            module = transformers.AutoModelForSeq2SeqLM.from_config(
                config, attn_implementation="eager").eval()
            states = module.get_encoder()(tokens[:, :SOURCE])
            cache = None
            for _ in range(TARGET):
                cache = module(encoder_outputs=states, decoder_input_ids=tokens[:, :1],
                               past_key_values=cache, use_cache=True).past_key_values
            layers = [*cache.self_attention_cache.layers, *cache.cross_attention_cache.layers]
        else:
            config._experts_implementation = "eager"
            module = transformers.AutoModelForCausalLM.from_config(
                config, attn_implementation="eager").eval()
            cache = module(tokens[:, :SOURCE + 1], use_cache=True, logits_to_keep=1).past_key_values
            for length in range(SOURCE + 2, SOURCE + TARGET + 1):
                module(tokens[:, :1], past_key_values=cache, use_cache=True,
                       attention_mask=tokens[:, :length])
            layers = cache.layers
    costs = evaluate_cost(ss.from_huggingface(config).definition.single_architecture().block,
                          replace(find_protocol("decode", SOURCE, TARGET), dense_windows=True))
    assert counter.get_total_flops() / 2 == costs["macs.total"]
    assert costs["memory.cache"] == sum(tensor.nbytes for layer in layers
                                        for tensor in (layer.keys, layer.values))


@pytest.mark.parametrize("name", MODEL_TYPES)
def test_file_describes_the_same_architecture(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": name, **FIRST[name]}))
    output = tmp_path / "model.yaml"
    result = CliRunner().invoke(import_, [str(tmp_path), "--to", str(output)])
    assert result.exit_code == 0, result.output
    space = read_space(tmp_path)
    assert read_space(output) == space
    for difference in space.not_expressed:
        assert f"# - {difference}\n" in output.read_text("utf-8")
        assert str(difference) in result.stderr


RELEASED = json.loads(RESULTS.read_text("utf-8"))["models"]


@pytest.mark.parametrize("model", RELEASED, ids=lambda model: model["name"])
def test_released_models_have_no_unexplained_differences(model: dict[str, Any]) -> None:
    assert not any(unexplained_differences(model).values())


@pytest.mark.full
@pytest.mark.parametrize("model", [
    pytest.param(model, id=model["name"],
                 marks=() if model["name"] in ("tiny", "mt5-small", "opt-350m")
                 else pytest.mark.slow)
    for model in RELEASED])
def test_counts_of_released_models_are_those_of_transformers(model: dict[str, Any]) -> None:
    pytest.importorskip("transformers", "5")
    sizes = dict(model["config"])
    counts = count(sizes.pop("model_type"), sizes)
    assert counts == {name: model[name] for name in counts}


def test_published_sizes() -> None:
    """Params of released models, from their configurations."""
    gpt2 = {"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 768,
            "n_layer": 12, "n_head": 12}
    assert params_of(Space.from_huggingface(gpt2)) == 124_439_808
    qwen3 = {"model_type": "qwen3", "vocab_size": 151_936, "hidden_size": 1024,
             "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
             "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": True}
    assert params_of(Space.from_huggingface(qwen3)) == 596_049_920
    mixtral = {"model_type": "mixtral", "vocab_size": 32_000, "hidden_size": 4096,
               "intermediate_size": 14_336, "num_hidden_layers": 32, "num_attention_heads": 32,
               "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2}
    assert params_of(Space.from_huggingface(mixtral)) == 46_702_792_704


@pytest.mark.parametrize(("config", "keys"), [
    ({"model_type": "t5", **T5}, {"encoder.score_dim": 1, "decoder.score_dim": 1}),
    ({"model_type": "gemma2", **LLAMA, "query_pre_attn_scalar": 24}, {"decoder.score_dim": 24}),
    ({"model_type": "gemma2", **LLAMA, "query_pre_attn_scalar": 16}, {"decoder.score_dim": 0}),
    ({"model_type": "falcon", **FALCON, "alibi": True}, {"decoder.alibi_scaled": True}),
    ({"model_type": "bloom", **BLOOM, "apply_residual_connection_post_layernorm": True},
     {"residual_after_norm": True, "decoder.alibi_scaled": False}),
    ({"model_type": "marian", **BART}, {"embedding.positions": "sinusoidal-marian"})])
def test_scales_residuals_and_positions_are_keys(config: dict[str, Any],
                                                 keys: dict[str, Any]) -> None:
    space = ss.from_huggingface(config)
    values = space.architecture().config
    assert {key: values[key] for key in keys} == keys
    assert not [difference for difference in space.not_expressed
                if "GELU" not in difference.text]


def test_differences_are_in_every_output(tmp_path: Path) -> None:
    file = tmp_path / "llama.json"
    file.write_text(json.dumps({"model_type": "llama", **LLAMA, "rope_theta": 500_000}))
    base = {"text": "rotary positions with base 500,000, not 10,000", "params": 0}

    printed = CliRunner().invoke(cost, [str(file), "--set", "decoder.depth=2", "--json"])
    single = json.loads(printed.stdout)
    assert base in single["not_expressed"]
    assert printed.stderr.count("warning:") == len(single["not_expressed"])
    exact = tmp_path / "marian.json"
    exact.write_text(json.dumps({"model_type": "marian", **BART}))
    compared = CliRunner().invoke(cost, [str(file), str(exact), "--json"]).stdout
    first, second = json.loads(compared)["architectures"]
    assert base in first["not_expressed"] and "not_expressed" not in second


def test_windows_and_text_models() -> None:
    text = {"model_type": "gemma3_text", "hidden_size": 32, "intermediate_size": 80,
            "num_hidden_layers": 7, "sliding_window": 512}
    space = ss.from_huggingface({"model_type": "gemma3", "text_config": text})
    assert "vision encoder" in " ".join(difference.text for difference in space.not_expressed)
    config = space.architecture().config
    assert config["decoder.heads"] == 8
    assert (config["decoder.window"], config["decoder.global_every"]) == (512, 6)


def test_other_heads_of_an_encoder_are_listed() -> None:
    config = {"model_type": "bert", **NEOX, "architectures": ["BertForQuestionAnswering"]}
    assert any("BertForQuestionAnswering" in difference.text
               for difference in ss.from_huggingface(config).not_expressed)


def test_cache_of_a_gemma_3_1b() -> None:
    """Four layers of 26 keep all 2,000 positions, the others the last 511 of the window."""
    space = ss.from_huggingface({
        "model_type": "gemma3_text", "hidden_size": 1152, "intermediate_size": 6912,
        "num_hidden_layers": 26, "num_attention_heads": 4, "num_key_value_heads": 1,
        "head_dim": 256, "sliding_window": 512, "vocab_size": 262_144})
    cost = space.architecture().cost(source=1, target=1999)
    assert cost["memory.cache"] == 4 * 2 * 256 * (4 * 2000 + 22 * 511) == 39_407_616


@pytest.mark.parametrize(("config", "code", "part"), [
    ({"model_type": "vit"}, "unknown-model-type", "gpt_neox"),
    ({"model_type": "bert"}, "missing-key", "num_hidden_layers"),
    ({"model_type": "llama"}, "missing-key", "intermediate_size"),
    ({}, "unknown-model-type", "None"),
    ({"model_type": "gpt2"}, "missing-key", "n_embd"),
    ({"model_type": "llama", **LLAMA, "num_key_value_heads": 3}, "bad-value",
     "num_key_value_heads: 3"),
    ({"model_type": "falcon", **FALCON, **NEW_FALCON, "num_kv_heads": 3}, "bad-value",
     "num_kv_heads: 3"),
    ({"model_type": "gpt2", **GPT2, "n_layer": "3"}, "bad-value", "n_layer"),
    ({"model_type": ["gpt2"]}, "unknown-model-type", "gpt2"),
    ({"model_type": "llama", **LLAMA, "rope_scaling": "linear"}, "bad-value", "llama"),
    ({"model_type": "llama", **LLAMA, "rope_theta": "large"}, "bad-value", "llama"),
    ({"model_type": "gpt2", **GPT2, "activation_function": ["relu"]}, "bad-value", "gpt2"),
    ({"model_type": "gpt2", **GPT2, "activation_function": "tanh"}, "activation-unsupported",
     "tanh")])
def test_invalid_configurations_are_refused(config: dict[str, Any], code: str, part: str) -> None:
    with refuses(code, part):
        ss.from_huggingface(config)


@pytest.mark.parametrize("name", FIRST)
def test_every_misspelled_entry_is_named(name: str) -> None:
    """Without an underscore, a required entry is an error and another one a warning."""
    transformers = pytest.importorskip("transformers", "5")
    config = {**transformers.AutoConfig.for_model(name, **FIRST[name]).to_dict(), **FIRST[name]}
    read = read_config(config)
    assert not any("`" in difference.text for difference in read.differences)
    for entry in [entry for entry in FIRST[name] if "_" in entry and entry in read.read]:
        typo = entry.replace("_", "", 1)
        misspelled = {typo if key == entry else key: value for key, value in config.items()}
        try:
            texts = [difference.text for difference in read_config(misspelled).differences]
        except UserError as error:
            texts = [str(error)]
        assert [f"`{entry}`" in text and f"`{typo}`" in text for text in texts].count(True) == 1


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"width": 64}')
    (tmp_path / "damaged.json").write_text('{"model_type":\n "gpt')
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "empty.json").touch()
    (tmp_path / "untyped.json").write_text('{"d_model": 8}')
    for name, place in (("damaged", ":2:2"), ("list", ""), ("empty", ":1:1"), ("untyped", "")):
        file = tmp_path / f"{name}.json"
        for read in (ss.from_huggingface, read_space):
            with refuses("not-huggingface-config", place=f"{file}{place}: "):
                read(file)
    assert read_space(tmp_path / "config.json") == ss.space({"width": 64}).definition
    for path, part in ((tmp_path, "config.json"), (tmp_path / "missing.json", "no such file"),
                       (tmp_path / "config.json", "model_type")):
        with refuses("not-huggingface-config", path, part):
            ss.from_huggingface(path)


@pytest.mark.parametrize(("text", "code"), [
    ('{"model_type": "whisper"}', "unknown-model-type"),
    ('{"model_type": "gpt2", "n_embd": "x"}', "bad-value"),
    (json.dumps({"model_type": "llama", **LLAMA, "vocab_size": 2}), "bad-value")])
def test_errors_name_the_configuration(tmp_path: Path, text: str, code: str) -> None:
    file = tmp_path / "model.json"
    file.write_text(text)
    with refuses(code, place=str(file)):
        ss.from_huggingface(file)
    for command in (cost, import_):
        with refuses(code, place=str(file)):
            command.main([str(file)], standalone_mode=False)


@pytest.mark.parametrize("command", [cost, import_])
def test_models_that_cannot_be_built_are_named(command: click.Command, tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    file.write_text(json.dumps({"model_type": "llama", **LLAMA, "head_dim": 13}))
    with refuses("unbuildable", "13", place=f"{file}, converted:"):
        command.main([str(file)], standalone_mode=False)


def test_import_never_overwrites_files(tmp_path: Path) -> None:
    config = {"model_type": "gpt2", "vocab_size": 100, "n_embd": 8, "n_layer": 1, "n_head": 2,
              "n_positions": 16}
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    target = tmp_path / "own.yaml"
    target.write_text("width: 64\n")
    with refuses("already-exists", target, "--force"):
        import_.main([str(file), "--to", str(target)], standalone_mode=False)
    assert target.read_text() == "width: 64\n"
    import_.main([str(file), "--to", str(target), "--force"], standalone_mode=False)
    assert read_space(target).single_architecture("own")
    for source in (tmp_path, file):
        with refuses("cannot-write", "config.yaml"):
            import_.main([str(source), "--to", str(file)], standalone_mode=False)
    assert json.loads(file.read_text()) == config


def test_other_objects_are_not_configurations() -> None:
    with refuses("not-huggingface-config", "3"):
        ss.from_huggingface(3)  # type: ignore[arg-type]
