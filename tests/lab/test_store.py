"""Records on disk: what was written comes back, damage is noticed, and other tools read the files."""

import json
from dataclasses import fields

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_bandits_lab import (
    Record,
    Run,
    Sweep,
    executor,
    read_record,
    study_of,
    write_record,
)
from kernel_bandits_lab.results import DamagedRecordError, read_results
from kernel_bandits_lab.study import reference
from pyarrow import parquet

import kernel_bandits as kb
from kernel_bandits.loop import RunResult

HORIZON = 12
STUDY = {
    "environments": [{"name": "Bump"}, {"name": "Chessboard", "label": "board"}],
    "policies": [{"name": "cbkb", "label": "CBKB, q̄ = {oversampling}", "grid": {"oversampling": [1.5, 2]}}],
    "seeds": 2,
    "horizon": HORIZON,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    list(Sweep(study_of(STUDY), folder).run(executor()))
    return folder


@pytest.fixture(scope="module")
def content(folder):
    return min((folder / "runs").iterdir()).read_bytes()


def results():
    """Any result, numbers as odd as they come."""

    def build(rounds, dimensions, draw):
        floats = st.lists(st.floats(width=64), min_size=rounds, max_size=rounds)
        whole = st.lists(st.integers(0, 2**62), min_size=rounds, max_size=rounds)
        values = {}
        for field in fields(RunResult):
            if field.name in ("actions", "contexts"):
                width = dimensions[field.name]
                flat = draw(st.lists(st.floats(width=64), min_size=rounds * width, max_size=rounds * width))
                values[field.name] = np.array(flat, dtype=float).reshape(rounds, width)
            elif field.name in ("action_indices", "dictionary_size"):
                values[field.name] = np.array(draw(whole), dtype=np.int64)
            else:
                values[field.name] = np.array(draw(floats), dtype=float)
        return RunResult(**values)

    @st.composite
    def composed(draw):
        dimensions = {"actions": draw(st.integers(1, 12)), "contexts": draw(st.integers(0, 3))}
        return build(draw(st.integers(1, 5)), dimensions, draw)

    return composed()


@settings(max_examples=50, deadline=None)
@given(results(), st.text(min_size=1), st.integers(0, 2**63 - 1))
def test_any_record_comes_back_bit_for_bit(tmp_path_factory, result, label, seed):
    label = label.encode("utf-8", "replace").decode()
    policy = reference("ek_ucb", {"kernel": {"name": "Gaussian", "lengthscale": [0.1, 2]}, "oversampling": 1.0}, label)
    written = Record(
        Run(reference("Bump", {}, label), policy, seed, result.horizon), result, {"host": label, "seconds": 0.5}
    )
    path = write_record(tmp_path_factory.getbasetemp() / "any", written)
    read = read_record(path)
    assert (read.run, read.run.id, read.run.label) == (written.run, written.run.id, written.run.label)
    assert read.provenance == written.provenance
    for field in fields(RunResult):
        expected, found = getattr(result, field.name), getattr(read.result, field.name)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.tobytes() == expected.tobytes()


def test_a_file_says_what_was_run_and_on_what(folder):
    for path in (folder / "runs").iterdir():
        described = json.loads(parquet.read_schema(path).metadata[b"kernel_bandits"])
        assert path.stem == described["id"]
        assert described["policy"]["kernel"]["name"] == "Gaussian"
        assert described["horizon"] == HORIZON
        facts = described["facts"]
        assert facts["numpy"] == np.__version__
        assert facts["kernel_bandits"] == kb.__version__
        assert {"started", "seconds", "python", "scipy", "platform", "processor", "processors", "host"} <= set(facts)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_flipped_bit_is_noticed_or_changes_nothing(tmp_path_factory, content, data):
    place = data.draw(st.integers(0, len(content) - 1))
    flipped = bytearray(content)
    flipped[place] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path_factory.getbasetemp() / "flipped.parquet"
    path.write_bytes(content)
    original = read_record(path)
    path.write_bytes(flipped)
    read, complaint = None, ""
    try:
        read = read_record(path)
    except DamagedRecordError as reason:
        complaint = str(reason)
    if read is None:
        assert complaint.startswith(f"{path}: ")
        assert "\n" not in complaint
        return
    assert (read.run, read.provenance) == (original.run, original.provenance)
    for field in fields(RunResult):
        found, expected = getattr(read.result, field.name), getattr(original.result, field.name)
        assert (found is None) == (expected is None)
        assert found is None or found.tobytes() == expected.tobytes()


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_a_cut_file_is_noticed(tmp_path_factory, content, data):
    path = tmp_path_factory.getbasetemp() / "cut.parquet"
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(DamagedRecordError, match=r"cut\.parquet"):
        read_record(path)


def test_a_foreign_file_is_noticed(tmp_path):
    path = tmp_path / "foreign.parquet"
    pd.DataFrame({"regret": [1.0]}).to_parquet(path)
    with pytest.raises(DamagedRecordError, match=r"foreign\.parquet"):
        read_record(path)


def test_a_write_that_fails_leaves_what_was_there(folder, tmp_path):
    (record, *_) = read_results(folder).records
    path = write_record(tmp_path, record)
    before = path.read_bytes()
    unwritable = Record(record.run, record.result, {"host": object()})
    with pytest.raises(TypeError):
        write_record(tmp_path, unwritable)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_results_come_in_the_order_and_with_the_labels_of_the_study(folder):
    study = study_of(STUDY)
    found = read_results(folder)
    assert [record.run.label for record in found.records] == [run.label for run in study.runs]
    renamed = study_of({**STUDY, "environments": [{"name": "Chessboard", "label": "plane"}, {"name": "Bump"}]})
    assert Sweep(renamed, folder).missing == ()
    assert [record.run.label for record in read_results(folder).records] == [run.label for run in renamed.runs]
    Sweep(study, folder)


def test_missing_runs_are_told_apart_from_finished_ones(folder, tmp_path):
    study = study_of(STUDY)
    for record in read_results(folder).records[:3]:
        write_record(tmp_path, record)
    sweep = Sweep(study, tmp_path)
    assert sweep.missing == study.runs[3:]
    found = read_results(tmp_path)
    assert (len(found.records), found.missing, found.damaged) == (3, study.runs[3:], {})


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": "x"}'])
def test_a_manifest_that_cannot_be_read_is_named(tmp_path, text):
    (tmp_path / "study.json").write_text(text)
    with pytest.raises(kb.InputError, match=r"study\.json"):
        read_results(tmp_path)


def final_regrets(folder):
    return {
        (r.run.environment.label, r.run.policy.label, r.run.seed): r.result.regret[-1]
        for r in read_results(folder).records
    }


def test_pandas_reads_the_records(folder):
    frame = pd.read_parquet(folder / "runs")
    last = frame[frame["round"] == HORIZON].set_index(["environment", "policy", "seed"])["regret"]
    assert last.to_dict() == final_regrets(folder)
    assert {"reward", "action_0", "context_4", "dictionary_size", "select_seconds"} <= set(frame.columns)


def test_polars_reads_the_records(folder):
    # runs differ in their columns
    frame = pl.concat([pl.read_parquet(path) for path in (folder / "runs").glob("*.parquet")], how="diagonal")
    last = frame.filter(pl.col("round") == HORIZON).select("environment", "policy", "seed", "regret").rows()
    assert {row[:3]: row[3] for row in last} == final_regrets(folder)


def test_duckdb_reads_the_records(folder):
    rows = duckdb.sql(
        f"SELECT environment, policy, seed, max(regret) FROM read_parquet('{folder}/runs/*.parquet', "
        "union_by_name = true) GROUP BY ALL"
    ).fetchall()
    assert {row[:3]: row[3] for row in rows} == final_regrets(folder)
