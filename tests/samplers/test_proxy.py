"""A proxy enters the surrogates only if their leave-one-out error falls."""

import random

import numpy as np
import pytest

from scalesearch.samplers.bayes.coordinates import Coordinates
from scalesearch.samplers.bayes.surrogate import Surrogate
from scalesearch.samplers.candidate import sample_candidate
from scalesearch.samplers.encoding import decode_params
from scalesearch.samplers.proxy import MIN_TESTED, ProxyTable, ScoreProxy, scale_proxy
from scalesearch.studies.trials.evaluator import Evaluator
from tests.errors import refuses
from tests.samplers.pools import FORWARD, SPACE, Searched

N_TRIALS = 14
N_NEW = 6


def coordinates(seed=0):
    """Random points that do not explain the scores."""
    points = np.random.default_rng(seed).random((N_TRIALS + N_NEW, 2))
    return Coordinates(points, np.arange(2), np.zeros((N_TRIALS + N_NEW, 0)))


def scores(seed=1):
    return np.random.default_rng(seed).normal(size=N_TRIALS + N_NEW)


def add(values, score, n_scored=N_TRIALS):
    final = score[:N_TRIALS, None].copy()
    final[n_scored:] = np.nan
    return ScoreProxy("wisdom", None).add_to(coordinates(), values, final, N_NEW)


def test_proxy_that_predicts_the_score_is_used():
    score = scores()
    test, extended = add(10 + 3 * score, score)
    assert test.is_used and test.error < 0.3 < test.error_without
    assert (test.n_trials, test.known_share) == (N_TRIALS, 1)
    assert extended.points.shape[1] == 3 and extended.trends.shape[1] == 1
    assert len(set(extended.groups)) == 3  # with its own length scale
    text = str(test)
    assert "wisdom is used" in text and f"{test.error:.3g}" in text
    assert f"{test.error_without:.3g}" in text


def test_proxy_that_does_not_reduce_the_error_is_not_used():
    """Errors are those of surrogates with and without the column."""
    score = scores()
    results = [add(np.random.default_rng(seed).normal(size=len(score)), score)
               for seed in range(10, 20)]
    assert sum(not test.is_used for test, _ in results) >= 5
    for test, chosen in results:
        assert test.is_used == (test.error < test.error_without)
        assert (chosen.points.shape[1] == 3) == test.is_used
    expected = np.abs(Surrogate(coordinates()[:N_TRIALS],
                                score[:N_TRIALS]).leave_one_out_residuals()).mean()
    assert results[0][0].error_without == pytest.approx(expected / score[:N_TRIALS].std())


def test_few_trials_or_unknown_candidates_exclude_a_proxy():
    score = scores()
    test, _ = add(score, score, MIN_TESTED - 1)
    assert not test.is_used and f"{MIN_TESTED} are needed" in str(test)
    values = score.copy()
    values[-4:] = np.nan  # four of six new candidates
    test, _ = add(values, score)
    assert not test.is_used and "33% of the new candidates" in str(test)


def test_unknown_proxies_are_predicted():
    score = scores()
    values = score.copy()
    values[[0, -1]] = np.nan
    test, extended = add(values, score)
    assert test.is_used and test.n_trials == N_TRIALS - 1
    assert np.isfinite(extended.points).all() and np.isfinite(extended.trends).all()


def test_wide_proxies_enter_as_logarithms():
    assert scale_proxy(np.array([1.0, 100])).tolist() == [0, np.log(100)]
    assert scale_proxy(np.array([1.0, 9])).tolist() == [1, 9]
    assert scale_proxy(np.array([-1.0, 100])).tolist() == [-1, 100]


def test_table_finds_numbers_words_and_missing_values(tmp_path):
    file = tmp_path / "wisdom.csv"
    file.write_text("param.width,norm,wisdom\n64.0,pre,1.5\n32,,2\n")
    table = ProxyTable(file, ["width", "norm", "depth"])
    assert table({"width": 64, "norm": "pre", "depth": 3}) == 1.5
    assert table({"width": 32, "norm": None}) == 2 == table({"width": 32})
    assert table({"width": 16, "norm": "pre"}) is None
    with refuses("unknown-key", "norm"):
        ProxyTable(file, ["width"])
    file.write_text("width,wisdom\n64,high\n")
    with refuses("cannot-read"):
        ProxyTable(file, ["width"])


def test_search_with_a_proxy_reports_its_errors():
    evaluated = []

    def wisdom(params):
        evaluated.append(params)
        return float(params["width"])

    search = Searched("bayes", proxy=ScoreProxy("wisdom", wisdom))
    search.run(MIN_TESTED + 2)
    sampler = search.study.sampler
    test = sampler.acquisition_after(search.trials)[0].proxy_test
    assert test.n_trials >= MIN_TESTED and test.error > 0
    assert sampler.proxy_note == str(test)
    assert len(evaluated) == len({str(sorted(params.items())) for params in evaluated})
    plain = Searched("bayes")
    plain.run(MIN_TESTED + 2)
    assert plain.study.sampler.proxy_note == ""


def test_proxies_of_an_evaluator(tmp_path):
    evaluator = Evaluator(SPACE, FORWARD, ())
    file = tmp_path / "wisdom.csv"
    file.write_text("width,encoder.depth,wisdom\n32,1,7\n32,2,8\n")
    names = ["encoder.depth", "params.decoder", str(file)]
    for seed in range(5):
        params = sample_candidate(evaluator.suggest_params, random.Random(seed)).params
        depth, size, wisdom = (evaluator.score_proxy(name).values([params])[0] for name in names)
        trial = evaluator.evaluate(decode_params(SPACE, params).params)
        assert depth == trial.config["encoder.depth"] and size == trial.costs["params.decoder"]
        expected = 6 + depth if trial.config["width"] == 32 else np.nan
        assert wisdom == pytest.approx(expected, nan_ok=True)
    with refuses("unknown-metric", "wisdom"):
        evaluator.score_proxy("wisdom")
