"""A tiny study with the built-in corpus and real training on the command line."""

import json
import os
import shutil
import signal

import pandas as pd
import pytest
from safetensors.numpy import load_file

from tests.corpora import DATA, write_text
from tests.processes import command, ended, start, wait_until

STUDY = f"""\
study: tiny
data: {DATA}
recipe: {{ steps: 6, max_tokens: 256, beam: 1, average: none, validate_every: 0 }}
objectives: {{ loss: min, bleu: max, params.total: min, macs.total: min }}
protocol: {{ name: forward, source: 12, target: 12, vocab: corpus }}
budget: params.total <= 40k
space:
  width: 16..48 step 16
  encoder: {{ depth: 1..2, heads: 2, head_dim: 8, ffn: {{ relu: {{ hidden: 32 }} }} }}
  decoder: {{ depth: 1, heads: 2, head_dim: 8, ffn: {{ relu: {{ hidden: 32 | 64 }} }} }}
reference: [ {{ name: small, \
set: {{ width: 16, encoder.depth: 1, decoder.ffn.relu.hidden: 32 }} }} ]
trials: 2
out: found
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A study stopped by Ctrl-C in its second training run, and resumed."""
    where = tmp_path_factory.mktemp("real")
    write_text(where)
    (where / "tiny.yaml").write_text(STUDY)
    process = start(where, "study", "run", "tiny.yaml", "--set", "recipe.steps=60")
    wait_until(lambda: list(where.glob("found/trials/0000-*/job.json")), process)
    process.send_signal(signal.SIGSTOP)  # so that it is at work for as long as others look at it
    output = command(where, "study", "run", "tiny.yaml", "--set", "recipe.steps=60", "--resume",
                   status=2)
    assert f"process {process.pid} on {os.uname().nodename} is already running" in output
    process.send_signal(signal.SIGCONT)
    process.send_signal(signal.SIGINT)
    (where / "first.txt").write_text("\n".join(map(str, ended(process))))
    (where / "between.json").write_text(command(where, "study", "watch", "found", "--json"))
    again = command(where, "study", "run", "tiny.yaml", "--set", "recipe.steps=60", "--resume")
    (where / "second.txt").write_text(again)
    return where


@pytest.mark.full
def test_ctrl_c_stops_and_prints_resume_command(folder):
    output = (folder / "first.txt").read_text()
    assert output.startswith("130\n") and "--resume" in output and "Traceback" not in output


def test_snapshot_has_reason_of_stop_and_end(folder):
    snapshot = json.loads((folder / "between.json").read_text())
    assert (snapshot["owner"]["state"], snapshot["owner"]["reason"]) == ("stopped", "interrupted")
    assert len(snapshot["running"]) == 1 and snapshot["eta"]["seconds"] is None
    snapshot = json.loads(command(folder, "study", "watch", "found", "--json"))
    assert (snapshot["owner"]["state"], snapshot["owner"]["reason"]) == (
        "finished",
        "2 candidates and 1 reference trained",
    )
    assert (
        snapshot["progress"]["share"],
        snapshot["progress"]["references"],
        snapshot["running"],
    ) == (1.0, [1.0, 1.0], [])


def test_resumed_study_trains_all_and_writes_files(folder):
    output = (folder / "second.txt").read_text()
    assert "2 candidates and 1 reference trained" in output
    assert "protocol forward, 12 source" in output
    assert "sacrebleu" in output.lower() or "BLEU: nrefs:1" in output
    folder_found = folder / "found"
    table = pd.read_csv(folder_found / "all.csv")
    assert (table["state"] == "complete").sum() == 3 and "small" in set(table["label"].dropna())
    assert (table.loc[table["state"] == "complete", "params.total"] <= 40_000).all()
    for stem in ("bleu-vs-params", "bleu-vs-macs"):
        assert (folder_found / f"{stem}.png").stat().st_size > 5000 and (
            folder_found / f"{stem}.svg"
        ).exists()


def test_records_are_complete(folder):
    records = [json.loads(file.read_text())
               for file in (folder / "found").glob("trials/*/record.json")]
    assert len(records) == 3
    for record in records:
        assert {"architecture", "params", "config", "costs", "protocol", "recipe", "seed", "data",
                "metrics", "versions", "device", "dtype", "seconds", "cpu_seconds", "state",
                "reason", "curve", "space_hash"} <= set(record)
        assert record["data"]["hash"] and record["data"]["synthetic"] is False and record[
            "metrics"]["bleu_signature"]
        assert record["recipe"]["steps"] == 60 and record["steps"] == 60
        weights = load_file(
            next((folder / "found").glob(f"trials/{record['trial']:04}-*/model.safetensors")))
        assert sum(weight.size for weight in weights.values()) == record["costs"]["params.total"]


def test_exported_architecture_has_costs_of_record(folder):
    """Protocol and vocabulary are those of the study, not of the space."""
    command(folder, "export", "found", "--best", "params.total", "--to", "torch", "--out", "best")
    record = json.loads((folder / "best" / "record.json").read_text())
    costs = json.loads(command(folder, "cost", "best", "--json"))
    assert costs["architecture"]["id"] == record["architecture"] and costs["protocol"] == record[
        "protocol"]
    flat = {f"{kind}.{name}": value for kind in ("params", "macs", "memory")
            for name, value in costs[kind].items()}
    assert flat == {name: record["costs"][name] for name in flat}
    again = command(folder, "train", "best/architecture.yaml", "--data", "tiny.yaml", "--set",
                    "recipe.steps=2", "--out", "again")
    assert record["architecture"] in again
    assert json.loads(command(folder, "cost", "again", "--json"))["protocol"] == record["protocol"]


@pytest.mark.full
def test_added_seeds_are_trained_and_reported(folder, tmp_path):
    where = tmp_path / "later"
    shutil.copytree(folder, where)
    before = pd.read_csv(where / "found" / "all.csv").set_index("trial")
    output = command(where, "study", "run", "tiny.yaml", "--resume", "--set", "recipe.steps=60",
                   "--set", "seeds.max_per_candidate=2", "--set", "seeds.extra_runs=2")
    out = where / "found"
    records = [json.loads(file.read_text()) for file in out.glob("trials/*/record.json")]
    again = [record for record in records if record["origin"] == "replicate"]
    assert len(records) == 3 + len(again) and 1 <= len(again) <= 2 and {
        record["seed"] for record in again} == {2}
    assert (
        f"2 candidates and 1 reference trained, then {len(again)} with further seeds" in output
        and "interval of a mean" in output
    )
    table = pd.read_csv(out / "all.csv").set_index("trial")
    assert list(table.index) == list(before.index), "a replicate is not a candidate"
    for record in again:
        loss = before.loc[record["original"], "loss"]
        assert record["metrics"]["loss"] != loss, "another seed is another training"
        assert table.loc[record["original"],
                         "loss"] == pytest.approx((loss + record["metrics"]["loss"]) / 2)
    assert json.loads((out / "study.json").read_text())["seeds"]["max_per_candidate"] == 2
    assert len(pd.read_csv(out / "seeds.csv")) == 2 * len(again)


def test_complete_trials_have_early_measurements(folder):
    table = pd.read_csv(folder / "found" / "all.csv")
    done = table[table["state"] == "complete"]
    assert done[["params.decoder", "proxy.synflow", "proxy.snip",
                 "proxy.grad_norm"]].notna().all().all()
    assert "Early measurements" in (folder / "second.txt").read_text()
    proxies = json.loads(command(folder, "study", "status", "found", "--json"))["proxies"]
    assert (proxies["metric"], proxies["trials"], proxies["correlations"]) == ("bleu", 3, [])


@pytest.mark.full
def test_warm_start_from_this_study(folder):
    (folder / "next.yaml").write_text(
        STUDY.replace("study: tiny", "study: next")
        .replace("trials: 2", "trials: 1")
        .replace("out: found", "out: next\nwarm_start: found")
    )
    same = ("--set", "recipe.steps=60")
    dry = command(folder, "study", "run", "next.yaml", *same, "--dry-run")
    assert "3 finished candidates imported, 0 architectures" in " ".join(dry.split())
    assert not (folder / "next").exists()
    output = command(folder, "study", "run", "next.yaml", *same)
    assert (
        "Warm start: 3 finished candidates imported" in output
        and "1 candidate and 3 imported candidates trained" in output
    )
    old, new = (pd.read_csv(folder / name / "all.csv") for name in ("found", "next"))
    assert list(new["bleu"][:3]) == list(old.loc[old["state"] == "complete", "bleu"])
    assert (new["state"] == "complete").sum() == 4 and "small" in set(new["label"].dropna())
    command(folder, "export", "next", "0", "--to", "torch", "--out", "taken")
    assert (folder / "taken" / "model.safetensors").is_file()
    other = command(folder, "study", "run", "next.yaml", "--set", "recipe.steps=7", "--out",
                    "other", "--dry-run")
    assert "the other study has another recipe" in " ".join(other.split())
