"""Pages of keys are generated from the schemas, and all keys have a description."""

import pytest

from scalesearch.spaces.schema.bound_tree import build_index
from scalesearch.training.recipe import PRESETS
from tools.reference import ELSEWHERE, PAGES, page, rows, stale


def test_committed_pages_are_current():
    assert stale() == [], "run `python tools/reference.py` and commit docs/reference"


@pytest.mark.parametrize("name", PAGES)
def test_all_keys_have_meaning_and_values(name):
    lacking = [row[0]
               for row in rows(PAGES[name].schema())
               if not row[1] or (not row[2] and "." not in row[0])]
    assert lacking == []


@pytest.mark.parametrize("name", PAGES)
def test_synonyms_differ_from_keys(name):
    """Such a synonym would never be used, because keys have precedence."""
    def clashes(group, path=""):
        inside = {**group.fields, **group.variants}
        for key, child in inside.items():
            yield from (f"{path}{key}: {word}" for word in child.synonyms if word in inside)
            yield from clashes(child, f"{path}{key}.") if hasattr(child, "fields") else ()

    assert list(clashes(PAGES[name].schema())) == []


@pytest.mark.parametrize(
    ("page", "word", "key"),
    [("space-language", "d_model", "width"), ("space-language", "num_layers", "encoder.depth"),
     ("space-language", "n_head", "encoder.heads"), ("recipe", "batch_size", "max_tokens"),
     ("recipe", "learning_rate", "lr"), ("recipe", "num_epochs", "epochs"),
     ("study-file", "searcher", "sampler"), ("data-file", "vocab_size", "vocab"),
     ("study-file", "batch_size", "recipe.max_tokens")])
def test_words_of_other_tools_are_synonyms(page, word, key):
    assert f"`{key}`" in (build_index(PAGES[page].schema()).describe_synonym(word) or "")


def test_sections_with_own_page_are_not_repeated():
    keys = [row[0] for row in rows(PAGES["study-file"].schema())]
    assert len(keys) == len(set(keys)) and not any(
        key.startswith(f"`{name}.") for name in ELSEWHERE for key in keys)


def test_equal_keys_of_both_stacks_and_of_several_blocks_are_one_row():
    text = page("space-language")
    assert text.count("`….depth`") == 1 and "`encoder.depth`" not in text
    assert "`….local.{lightweight, dynamic, separable}.kernel`" in text
    assert "`decoder.interleaved`" in text


def test_tables_hold_all_keys_and_sections_are_not_empty():
    for name, spec in PAGES.items():
        text = page(name)
        assert all(f"## {heading}\n" in text for heading in spec.sections)
        leaves = {row[0].strip("`").rpartition(".")[2] for row in rows(spec.schema())}
        assert [leaf for leaf in sorted(leaves) if leaf not in text] == []


def test_recipe_page_shows_presets_in_full():
    text = page("recipe")
    assert all(f"**`{name}`**" in text for name in PRESETS)
    assert f"`max_tokens: {PRESETS['partialformer']['max_tokens']}`" in text
