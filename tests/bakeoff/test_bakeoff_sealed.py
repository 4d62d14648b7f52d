"""The sealed holdout: what is listed, what is refused, and that a release is played once. Nothing sealed is played."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from bakeoff import sealed
from bakeoff.libraries.base import Library
from bakeoff.problem import problem
from bakeoff.records import Cell, Record, write_record
from bakeoff.sealed_tables import TABLES, _complete
from bakeoff.sources import checksums
from bakeoff.tables import all_tables


def test_the_list_is_complete_and_shares_no_table_with_the_open_ones():
    content = sealed.ledger()
    assert set(content["tables"]) == set(TABLES)
    assert len(TABLES) >= sealed.FEWEST
    assert len(set(content["tables"].values())) == len(TABLES)
    assert all(len(digest) == 64 for digest in content["tables"].values())
    open_sources = {str(table.source) for table in all_tables().values()}
    for table in TABLES.values():
        assert str(table.source) in checksums()
        assert str(table.source) not in open_sources
        assert not table.is_development
    assert not set(TABLES) & set(all_tables())


def test_a_digest_sees_every_row_reward_and_column():
    generator = np.random.default_rng(0)
    contexts, rewards = generator.random((20, 3)), np.eye(2)[generator.integers(2, size=20)]
    digest = sealed.rows_digest(problem(contexts, [0, 1, 2], rewards))
    assert digest == sealed.rows_digest(problem(contexts.copy(), [0, 1, 2], rewards.copy()))
    others = (
        problem(contexts[::-1].copy(), [0, 1, 2], rewards),
        problem(contexts, [0, 1, 1], rewards),
        problem(contexts, [0, 1, 2], 1.0 - rewards),
    )
    assert all(sealed.rows_digest(other) != digest for other in others)


def prepared(tables):
    """What the check looks at of a bake-off."""
    return SimpleNamespace(tables=tables, problem=tables.__getitem__)


def test_other_rows_or_tables_than_those_that_were_sealed_are_refused():
    rows = problem(np.arange(8.0)[:, None], [0], np.eye(2)[np.arange(8) % 2])
    content = {"tables": {"one": sealed.rows_digest(rows)}, "releases": []}
    sealed.require_sealed(prepared({"one": rows}), content)
    changed = problem(np.arange(8.0)[::-1][:, None].copy(), [0], np.eye(2)[np.arange(8) % 2])
    with pytest.raises(sealed.SealError, match="one: its rows are not those that were sealed"):
        sealed.require_sealed(prepared({"one": changed}), content)
    for tables in ({}, {"one": rows, "two": rows}):
        with pytest.raises(sealed.SealError, match=r"not those of sealed\.json"):
            sealed.require_sealed(prepared(tables), content)


def test_a_release_is_played_once_with_one_set_of_sources():
    content = {"tables": {"b": "2", "a": "1"}, "releases": []}
    entry = sealed.begin(content, "1.0", "abc")
    assert entry == {"release": "1.0", "sources": "abc", "tables": ["a", "b"], "outcome": None}
    assert sealed.begin(content, "1.0", "abc") is entry, "an interrupted play goes on"
    with pytest.raises(sealed.SealError, match="begun with sources abc, and these are def"):
        sealed.begin(content, "1.0", "def")
    found = {"tables": 2, "rank": 1.5, "error": 0.5, "shared": 2, "ranks": {"Ours": 1.5}}
    entry["outcome"] = {**found, "better": {}, "worse": {}, "points": {}, "left_out": []}
    with pytest.raises(sealed.SealError, match=r"1\.0 was played: 2 tables: our mean rank is 1\.50"):
        sealed.begin(content, "1.0", "abc")
    assert sealed.begin(content, "1.1", "def")["outcome"] is None


def test_peers_that_were_played_ahead_serve_a_release_with_the_same_versions(tmp_path):
    peer = Library("peer", "peer", ("package==2",), ())
    for table, version in (("one", "2"), ("other", "1")):
        record = Record(Cell(table, "peer", "algorithm", {}, 0, 20), 20, 0.5, 1.0, 1.0, [], {"package": version})
        write_record(tmp_path / "ahead", record)
    bakeoff = SimpleNamespace(libraries={"peer": peer}, records=tmp_path / "release")
    assert sealed.take_over(bakeoff, tmp_path / "ahead") == 1
    assert [path.parent.parent.name for path in tmp_path.glob("release/*/*/*.json")] == ["one"]
    assert sealed.take_over(SimpleNamespace(libraries={}, records=tmp_path / "no"), tmp_path / "ahead") == 0


def test_a_ledger_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "sealed.json"
    assert sealed.ledger(path) == {"tables": {}, "releases": []}
    content = {"tables": {"one": "abc"}, "releases": []}
    sealed.write_ledger(content, path)
    assert json.loads(path.read_text()) == content == sealed.ledger(path)
    with pytest.raises(sealed.SealError, match="needs at least 15 tables, and there are 1"):
        sealed.seal({"one": next(iter(TABLES.values()))}, tmp_path, path)


def test_incomplete_columns_and_names_are_left_out():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "label": ["a", "b"] * 30,
            "number": np.arange(60.0),
            "missing": [np.nan] * 20 + [1.0, 2.0] * 20,
            "holes": [np.nan] * 3 + [1.0, 2.0, 3.0] * 19,
            "name": [f"row {row}" for row in range(60)],
            "constant": 1,
            "leak": np.arange(60),
        }
    )
    found = _complete(frame, "label", ("leak",))
    assert list(found.columns) == ["label", "number", "holes"]
    assert len(found) == 57
