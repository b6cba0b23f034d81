"""M2 score compared with the official scorer, its rules and brute force."""

from itertools import product
from random import Random

import pytest

from scalesearch.tasks.correction import EditCounts, alignment_lattice, count_edits, count_matches
from scalesearch.tasks.edits import Edit, apply_edits, extract_edits, parse_m2

# The example of the official scorer's README (release 3.2), whose printed scores are all 0.8.
GOLD = """\
S The cat sat at mat .
A 3 4|||Prep|||on|||REQUIRED|||-NONE-|||0
A 4 4|||ArtOrDet|||the||a|||REQUIRED|||-NONE-|||0

S The dog .
A 1 2|||NN|||dogs|||REQUIRED|||-NONE-|||0
A -1 -1|||noop|||-NONE-|||-NONE-|||-NONE-|||1

S Giant otters is an apex predator .
A 2 3|||SVA|||are|||REQUIRED|||-NONE-|||0
A 3 4|||ArtOrDet|||-NONE-|||REQUIRED|||-NONE-|||0
A 5 6|||NN|||predators|||REQUIRED|||-NONE-|||0
A 1 2|||NN|||otter|||REQUIRED|||-NONE-|||1
"""
SYSTEM = ["A cat sat on the mat .", "The dog .", "Giant otters are apex predator ."]


def counts(system: list[str], gold: str = GOLD) -> EditCounts:
    sentences = parse_m2(gold.splitlines(), "gold.m2")
    return count_edits([s.source for s in sentences], system, [s.annotators for s in sentences])


def test_example_of_the_official_scorer() -> None:
    output = counts(SYSTEM)
    assert output == EditCounts(correct=4, proposed=5, gold=5)
    assert (output.precision, output.recall, output.f_score()) == pytest.approx((0.8, 0.8, 0.8))


def test_missing_word_reduces_recall() -> None:
    output = counts(["A cat sat on mat .", *SYSTEM[1:]])
    assert output == EditCounts(3, 4, 5)
    assert output.f_score() == pytest.approx(1.25 * 0.75 * 0.6 / (0.25 * 0.75 + 0.6))


def test_unchanged_source_and_perfect_correction() -> None:
    sentences = parse_m2(GOLD.splitlines(), "gold.m2")
    untouched = counts([s.source for s in sentences])
    assert (untouched.correct, untouched.proposed, untouched.f_score()) == (0, 0, 0.0)
    perfect = counts([apply_edits(s.source, s.annotators[0]) for s in sentences])
    assert perfect.f_score() == 1.0 and perfect.correct == perfect.proposed == perfect.gold


def test_each_alternative_of_a_gold_edit_is_correct() -> None:
    for article in ("the", "a"):
        assert counts([f"The cat sat on {article} mat .", *SYSTEM[1:]]) == EditCounts(4, 4, 5)


def test_edit_covers_at_most_two_unchanged_words() -> None:
    for unchanged, n_correct in (("x y", 1), ("x y z", 0)):
        source = f"a {unchanged} b"
        expected_text = f"c {unchanged} d"
        length = len(source.split())
        output = count_matches(alignment_lattice(source.split(), expected_text.split()),
                               expected_text.split(), (Edit(0, length, (expected_text,)),))
        assert output.correct == n_correct


def test_insertions_at_one_position_match_in_order() -> None:
    source = ["go"]
    expected_text = ["you", "must", "go"]
    lattice = alignment_lattice(source, expected_text)
    first = Edit(0, 0, ("you",))
    second = Edit(0, 0, ("must",))
    assert count_matches(lattice, expected_text, (first, second)) == EditCounts(2, 2, 2)
    assert count_matches(lattice, expected_text, (second, first)) == EditCounts(1, 2, 2)
    repeated = ["you", "you", "go"]
    lattice = alignment_lattice(source, repeated)
    assert count_matches(lattice, repeated, (first,)) == EditCounts(1, 2, 1)
    assert count_matches(lattice, repeated, (first, first)) == EditCounts(2, 2, 2)


def test_edit_without_change_counts_as_missed() -> None:
    words = ["a", "b"]
    assert count_matches(alignment_lattice(words, words), words,
                         (Edit(0, 1, ("a",)),)) == EditCounts(0, 0, 1)


def test_best_annotator_is_selected() -> None:
    gold = "S a b\nA 0 1|||X|||c|||R|||-|||0\nA 1 2|||X|||d|||R|||-|||1\n"
    assert counts(["a d"], gold) == counts(["c b"], gold) == EditCounts(1, 1, 1)


def paths(source: list[str], expected_text: list[str]) -> list[list[tuple]]:
    """All minimal paths between two sentences, as steps (i, j, i', j', is_change)."""
    def walk(i: int, j: int) -> list[list[tuple]]:
        if (i, j) == (len(source), len(expected_text)):
            return [[]]
        output = []
        for di, dj in ((1, 0), (0, 1), (1, 1)):
            if i + di <= len(source) and j + dj <= len(expected_text):
                step = (i, j, i + di, j + dj, di != dj or source[i] != expected_text[j])
                output += [[step, *others] for others in walk(i + di, j + dj)]
        return output

    everything = walk(0, 0)
    steps = set()
    for replacing in (1, 2):
        def cost(path: list[tuple], replacing: int = replacing) -> int:
            return sum((replacing if s[2] > s[0] and s[3] > s[1] else 1) * s[4] for s in path)
        least = min(map(cost, everything))
        steps |= {step for path in everything if cost(path) == least for step in path}
    return [path for path in everything if steps.issuperset(path)]


def splits(path: list[tuple]) -> list[list[list[tuple]]]:
    """All partitions of a path into edits (runs of steps) and unchanged words."""
    output = []
    for cuts in product((True, False), repeat=max(0, len(path) - 1)):
        runs: list[list[tuple]] = [path[:1]] if path else []
        for step, cut in zip(path[1:], cuts):
            if cut:
                runs.append([step])
            else:
                runs[-1].append(step)
        if all((any(s[4] for s in run) and sum(not s[4] for s in run) <= 2) or len(run) == 1
               for run in runs):
            output.append(runs)
    return output


def brute_force(source: list[str], expected_text: list[str], gold: tuple[Edit, ...]) -> EditCounts:
    best = None
    for path in paths(source, expected_text):
        for runs in splits(path):
            edits = [(run[0][0], run[-1][2], " ".join(expected_text[run[0][1]:run[-1][3]]),
                      len(run)) for run in runs if any(step[4] for step in run)]
            stay = len(path) - sum(edit[3] for edit in edits)
            for chosen in product((True, False), repeat=len(edits)):
                right = [edit for edit, yes in zip(edits, chosen) if yes]
                if agree(right, gold):
                    other = [edit for edit, yes in zip(edits, chosen) if not yes]
                    cost = (-len(right), stay + sum(edit[3] for edit in other), len(other))
                    best = cost if best is None else min(best, cost)
    assert best is not None
    return EditCounts(-best[0], best[2] - best[0], len(gold))


def agree(edits: list[tuple], gold: tuple[Edit, ...]) -> bool:
    """Whether the edits are gold edits, in order and each at most once."""
    if not edits:
        return True
    for place, edit in enumerate(gold):
        start, end, text, _ = edits[0]
        if (edit.start, edit.end) == (start, end) and text in edit.corrections:
            return agree(edits[1:], gold[place + 1:])
    return False


def random_case(rng: Random) -> tuple[list[str], list[str], tuple[Edit, ...]]:
    source, expected_text = (rng.choices("abc", k=rng.randint(0, 4)) for _ in range(2))
    gold = set()
    for _ in range(rng.randint(0, 3)):
        start = rng.randint(0, len(source))
        end = rng.randint(start, min(len(source), start + 2))
        texts = tuple(" ".join(rng.choices("abc", k=rng.randint(0 if end > start else 1, 2)))
                      for _ in range(rng.randint(1, 2)))
        gold.add(Edit(start, end, texts))
    return source, expected_text, tuple(sorted(gold,
                                      key=lambda edit: (edit.start, edit.end, edit.corrections)))


@pytest.mark.full
def test_best_set_of_edits_equals_brute_force() -> None:
    rng = Random(5)
    matched = 0
    for _ in range(400):
        source, expected_text, gold = random_case(rng)
        output = count_matches(alignment_lattice(source, expected_text), expected_text, gold)
        assert output == brute_force(source, expected_text, gold), (source, expected_text, gold)
        matched += output.correct
    assert matched > 50


def test_reference_matches_its_own_edits() -> None:
    rng = Random(2)
    for _ in range(200):
        source, reference = (" ".join(rng.choices("abcd", k=rng.randint(1, 9))) for _ in range(2))
        edits = extract_edits(source, reference)
        assert apply_edits(source, edits) == reference
        output = count_edits([source], [reference], [(edits,)])
        assert output.correct == output.proposed == output.gold == len(edits)
