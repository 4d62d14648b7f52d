"""The game, the plan, the records and the workers, on tables of a few rows."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from bakeoff import archive
from bakeoff.execution import Ended, play_here, play_task, tasks_of
from bakeoff.game import Player, curve_of, order_of, play, shape_of
from bakeoff.libraries import all_libraries, library_of
from bakeoff.libraries.base import Entry, Library, grid
from bakeoff.plan import Extent, final_cells, finalists, first_cells
from bakeoff.problem import problem
from bakeoff.records import Cell, Record, read_record, read_records, write_record
from bakeoff.worker import OWN_SOURCES, sources_digest

EXTENT = Extent(horizon=20, shuffles=4, screening=2, finalists=1)


class Always(Player):
    def __init__(self, arm):
        self.arm = arm
        self.learned = []

    def choose(self, offer):  # noqa: ARG002 (the same arm whatever is offered)
        return self.arm

    def learn(self, offer, arm, reward):
        self.learned.append((offer.context[0], arm, reward))


def _rows(count=30):
    rewards = np.zeros((count, 2))
    rewards[np.arange(count), np.arange(count) % 2] = 1.0
    return problem(np.arange(count, dtype=float)[:, None], [0], rewards)


def test_rows_are_played_once_in_the_order_of_the_seed():
    player = Always(1)
    outcome = play(player, _rows(), seed=3, horizon=20)
    order = order_of(30, 3, 20)
    assert [context for context, _, _ in player.learned] == order.tolist()
    assert outcome.rounds == 20
    assert outcome.reward == np.mean(order % 2)
    assert len(set(order.tolist())) == 20
    assert order_of(30, 3, 30)[:20].tolist() == order.tolist(), "a shorter horizon is a prefix"


def test_a_log_counts_only_rows_where_the_logged_arm_is_chosen():
    rewards = np.full((30, 2), np.nan)
    rewards[:12, 0] = 1.0
    rewards[12:, 1] = 0.0
    player = Always(0)
    outcome = play(player, problem(np.zeros((30, 1)), [0], rewards), seed=0, horizon=30)
    assert (outcome.rounds, outcome.reward, len(player.learned)) == (12, 1.0, 12)


def test_an_arm_that_is_not_offered_is_an_error():
    with pytest.raises(ValueError, match="from 0 to 1, got 2"):
        play(Always(2), _rows(), 0, 5)


def test_a_curve_ends_at_the_last_round_with_the_mean_of_all():
    rewards = np.array([0.0, 1.0] * 50)
    curve = curve_of(rewards)
    assert curve[0][0] == 10
    assert curve[-1] == (100, 0.5)
    assert curve_of(rewards[:5]) == []


def _library(entries):
    return Library("toy", "toy", (), entries)


def _never(*_):
    raise AssertionError("the plan builds no players")


def test_grids_are_screened_and_finalists_go_on():
    wide, narrow = Entry("wide", _never, grid(alpha=(1, 2, 3))), Entry("narrow", _never)
    library = _library((wide, narrow))
    first = first_cells("pima", _rows(), library, EXTENT)
    assert sum(cell.entry == "wide" for cell in first) == 3 * 2
    assert sum(cell.entry == "narrow" for cell in first) == 4, "one setting needs no screening"
    rewards = {1: 0.5, 2: 0.9, 3: 0.7}
    records = [
        Record(cell, 20, rewards[cell.settings["alpha"]] if cell.entry == "wide" else 0.1, 1.0, 1.0) for cell in first
    ]
    final = final_cells("pima", _rows(), library, EXTENT, records)
    assert {(cell.entry, cell.settings["alpha"], cell.seed) for cell in final} == {("wide", 2, 2), ("wide", 2, 3)}
    assert finalists(wide, [], EXTENT) == [], "nothing goes on before the screening"


def test_entries_that_cannot_play_a_shape_are_left_out():
    library = _library((Entry("binary", _never, plays=lambda shape: not shape.is_binary),))
    assert first_cells("pima", _rows(), library, EXTENT) == []
    assert shape_of(_rows(), 1000).horizon == 30


def test_large_tables_are_shuffled_less_often():
    assert len(Extent().seeds(4999)) == 10
    assert len(Extent().seeds(5000)) == 5
    assert len(Extent(large=1000, shuffles_of_large=3).seeds(1000)) == 3
    assert len(Extent(shuffles=2).seeds(5000)) == 2


def test_a_grid_holds_every_combination_once():
    assert grid(a=(1, 2), b=("x",)) == ({"a": 1, "b": "x"}, {"a": 2, "b": "x"})
    with pytest.raises(ValueError, match="twice"):
        Entry("twice", _never, ({"a": 1}, {"a": 1}))


def test_records_survive_their_files_and_are_found_by_their_cells(tmp_path):
    cell = Cell("pima", "mabwiser", "LinUCB, best", {"alpha": 0.1}, 3, 100)
    record = Record(cell, 100, 0.75, 1.5, 2.0, [[10, 0.5]], {"numpy": "2"})
    write_record(tmp_path, record)
    assert read_record(tmp_path / cell.path) == record
    other = Cell("pima", "mabwiser", "LinUCB, best", {"alpha": 0.2}, 3, 100)
    assert list(read_records(tmp_path, [other, cell])) == [record]


def test_a_path_depends_on_everything_that_a_run_does():
    cells = [
        Cell("pima", "mabwiser", "LinUCB", {"alpha": 0.1, "k": 1}, 0, 100),
        Cell("pima", "mabwiser", "LinUCB", {"alpha": 0.2, "k": 1}, 0, 100),
        Cell("pima", "mabwiser", "LinUCB", {"alpha": 0.1, "k": 1}, 1, 100),
        Cell("pima", "mabwiser", "LinUCB", {"alpha": 0.1, "k": 1}, 0, 200),
        Cell("pima", "mabwiser", "LinTS", {"alpha": 0.1, "k": 1}, 0, 100),
    ]
    assert len({cell.path for cell in cells}) == len(cells)
    assert cells[0].path == Cell("pima", "mabwiser", "LinUCB", {"k": 1, "alpha": 0.1}, 0, 100).path


def _floor_tasks(tmp_path):
    import sys

    _rows().save(tmp_path / "rows.npz")
    library = library_of("floor")
    cells = first_cells("rows", _rows(), library, EXTENT)
    return tasks_of(cells, {"floor": sys.executable}, {"rows": tmp_path / "rows.npz"}, tmp_path / "records"), cells


def test_a_stopped_run_goes_on_and_leaves_the_same_records(tmp_path):
    tasks, cells = _floor_tasks(tmp_path)
    assert len(tasks) == 4, "one per seed"
    told: list[Ended] = []
    assert not [one.error for one in play_task(tasks[0]) if one.error]
    again, _ = _floor_tasks(tmp_path)
    assert len(again) == 3, "what is there is not played again"
    assert not [one for ended in play_here(again, 2, told.append) for one in ended if one.error]
    assert len(told) == 6
    records = list(read_records(tmp_path / "records", cells))
    assert len(records) == len(cells) == 8
    alone = records[0]
    (tmp_path / "records" / alone.cell.path).unlink()
    (task,), _ = _floor_tasks(tmp_path)
    play_task(task)
    assert read_record(tmp_path / "records" / alone.cell.path).reward == alone.reward


def test_a_failing_cell_is_reported_and_the_others_are_played(tmp_path):
    tasks, _ = _floor_tasks(tmp_path)
    bad = Cell("rows", "floor", "no such entry", {}, 0, 20)
    task = type(tasks[0])(tasks[0].python, tasks[0].problem, tasks[0].records, (bad, *tasks[0].cells))
    ended = play_task(task)
    assert [bool(one.error) for one in ended] == [True, False, False]


def test_a_worker_that_cannot_start_fails_all_its_cells(tmp_path):
    tasks, _ = _floor_tasks(tmp_path)
    task = type(tasks[0])(tasks[0].python, tmp_path / "absent.npz", tasks[0].records, tasks[0].cells)
    ended = play_task(task)
    assert len(ended) == 2
    assert all("ended early" in one.error for one in ended)


def test_every_library_is_described_without_being_installed():
    libraries = all_libraries()
    assert next(iter(libraries.values())).role == "ours"
    assert {library.role for library in libraries.values()} == {"ours", "probe", "peer", "skyline", "floor"}
    for library in libraries.values():
        assert library_of(library.module) is library
        assert len({entry.name for entry in library.entries}) == len(library.entries)
        assert all("==" in line for line in library.requirements), "versions are pinned"
        json.dumps([dict(settings) for entry in library.entries for settings in entry.grid])


def test_the_floor_learns_the_better_arm():
    rewards = np.tile([0.0, 1.0], (200, 1))
    table = problem(np.zeros((200, 1)), [0], rewards)
    entry = library_of("floor").entry("UCB1-tuned")
    assert play(entry.build({}, shape_of(table, 200), 0), table, 0, 200).reward > 0.9
    uniform = library_of("floor").entry("uniform")
    assert 0.3 < play(uniform.build({}, shape_of(table, 200), 0), table, 0, 200).reward < 0.7


def test_whoever_stops_ends_the_workers_and_keeps_what_is_finished(tmp_path):
    tasks, cells = _floor_tasks(tmp_path)
    playing = play_here(tasks, 1, lambda _: None)
    next(playing)
    playing.close()
    kept = list(read_records(tmp_path / "records", cells))
    assert 2 <= len(kept) < len(cells)
    again, _ = _floor_tasks(tmp_path)
    assert not [one for ended in play_here(again, 1, lambda _: None) for one in ended if one.error]
    assert len(list(read_records(tmp_path / "records", cells))) == len(cells)


def test_records_of_peers_are_shipped_and_laid_out_again(tmp_path):
    def library(module, role="peer"):
        return Library(module, module, (f"{module}==2",), (), role)

    libraries = {"one": library("one"), "other": library("other")}
    libraries |= {role: library(role, role) for role in ("ours", "probe")}
    cells = {name: Cell("table", name, "algorithm", {"alpha": 1.0}, 0, 20) for name in libraries}
    records = {name: Record(cell, 20, 0.5, 1.25, 3.0, [[10, 0.5]], {name: "2"}) for name, cell in cells.items()}
    for record in records.values():
        write_record(tmp_path / "played", record)
    file = tmp_path / "peers.jsonl.gz"
    assert archive.pack(tmp_path / "played", libraries, file) == 2
    content = file.read_bytes()
    assert archive.pack(tmp_path / "played", {"one": libraries["one"]}, file) == 2, "what is archived stays"
    assert file.read_bytes() == content
    updated = {**libraries, "other": Library("other", "other", ("other==3",), ())}
    assert archive.unpack(tmp_path / "here", updated, file) == 1, "another version of a peer has to be played"
    assert archive.unpack(tmp_path / "here", updated, file) == 0
    assert list(read_records(tmp_path / "here", cells.values())) == [records["one"]]


def test_our_records_are_shipped_and_laid_out_for_the_same_sources_alone(tmp_path):
    libraries = {role: Library(role, role, (), (), role) for role in ("ours", "probe", "peer")}
    sources = {"ours": sources_digest(), "probe": "of yesterday", "peer": None}
    for name, made_by in sources.items():
        facts = {} if made_by is None else {OWN_SOURCES: made_by}
        write_record(tmp_path / "played", Record(Cell("table", name, "one", {}, 0, 20), 20, 0.5, 1.0, 1.0, [], facts))
    file = tmp_path / "ours.jsonl.gz"
    assert archive.pack_ours(tmp_path / "played", libraries, file) == 1, "what earlier sources made is left out"
    assert archive.unpack(tmp_path / "here", libraries, file) == 1
    write_record(tmp_path / "played", replace(read_record(*tmp_path.glob("here/*/ours/*.json")), reward=0.75))
    assert archive.pack_ours(tmp_path / "played", libraries, file) == 1, "the archive is of one play"
    old = Record(Cell("table", "ours", "one", {}, 1, 20), 20, 0.5, 1.0, 1.0, [], {OWN_SOURCES: "of yesterday"})
    assert not archive.is_of_these_sources(old)
    archive._write([asdict(old)], file)
    assert archive.unpack(tmp_path / "there", libraries, file) == 0, "other sources have to be played"
    assert archive.unpack(tmp_path / "there", libraries, file, of_any_sources=True) == 1


@pytest.mark.parametrize("module", ["mabwiser", "vowpal_wabbit", "contextualbandits", "bayesianbandits", "river"])
def test_records_of_another_version_of_a_peer_are_not_current(module):
    library = {one.module: one for one in all_libraries().values()}[module]
    package = module.replace("_", "")
    cell = Cell("table", module, "algorithm", {}, 0, 20)
    assert not archive.is_current(Record(cell, 20, 0.5, 1.0, 1.0, facts={package: "0.0.1"}), library)


def test_the_archive_is_there():
    assert archive.ARCHIVE.exists()
