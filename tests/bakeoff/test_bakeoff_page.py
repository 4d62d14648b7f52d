"""The page of a bake-off whose records are made up."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from bakeoff.comparison import results_of
from bakeoff.game import Player
from bakeoff.libraries.base import Entry, Library, grid
from bakeoff.page import (
    baselines,
    command,
    drivers,
    in_short,
    losses,
    markdown,
    pairs,
    results,
    sealed,
    settings,
    shuffles,
    skylines,
    standing,
)
from bakeoff.plan import Extent, final_cells, first_cells
from bakeoff.problem import problem
from bakeoff.records import Cell, Record
from bakeoff.report import Report, TableReport
from bakeoff.sealed import outcome_of
from bakeoff.sources import Source
from bakeoff.tables.base import Table

# Mean reward by table and library; shuffles differ from it by the same small steps for everyone.
REWARDS = {
    "one": {"ours": 0.90, "peer": 0.80, "other": 0.70, "skyline": 0.95, "floor": 0.50},
    "two": {"ours": 0.60, "peer": 0.70, "other": 0.60, "skyline": 0.80, "floor": 0.20},
}


def _never(*_) -> Player:
    raise AssertionError("a page builds no players")


def _library(module, role):
    entry = "uniform" if role == "floor" else "algorithm"
    return Library(module.title(), module, ("numpy==2",), (Entry(entry, _never, grid(alpha=(1,))),), role)


LIBRARIES = {
    "ours": _library("ours", "ours"),
    "peer": _library("peer", "peer"),
    "other": _library("other", "peer"),
    "skyline": _library("skyline", "skyline"),
    "floor": _library("floor", "floor"),
}


def _report():
    rows = problem(np.zeros((50, 2)), [0, 1], np.eye(3)[np.arange(50) % 3])
    tables = []
    for name, rewards in REWARDS.items():
        records = []
        for library, mean in rewards.items():
            for seed in range(3):
                jitter = 0.001 * seed * (1 if library == "ours" else 2)
                cell = Cell(name, library, LIBRARIES[library].entries[0].name, {"alpha": 1}, seed, 50)
                records.append(Record(cell, 50, mean + jitter, 0.1, 3.0, [[10, 0.1], [50, mean]]))
        table = Table(name, "classes", Source("package", "1", (name,)), _never, (50, 2, 3), "a note")
        tables.append(TableReport(table, rows, 50, 3, results_of(records, 3)))
    return Report(tables, LIBRARIES)


def test_ranks_and_tallies():
    report = _report()
    assert report.competitors == ["ours", "peer", "other"]
    assert report.rank_by_table() == {"one": 1.0, "two": 3.0}
    assert report.tally("ours", "peer") == (1, 0, 1)
    assert report.tally("peer", "ours") == (1, 0, 1)
    assert report.speed()["ours"] == (2.0, pytest.approx(2.0))
    assert report.memory() == {"ours": 3.0, "peer": 3.0, "other": 3.0}
    np.testing.assert_allclose(report.ranking().mean_ranks, [2.0, 1.5, 2.5])


def test_ours_is_compared_with_entries_on_the_tables_that_all_played():
    report = _report()
    found = report.among(["peer: algorithm", "floor"])
    assert [rank for rank, _ in found.values()] == [1.0, 2.0]
    np.testing.assert_allclose(found["two"][1], [-0.101, 0.399])
    assert report.among(["peer", "nobody"]) == {}
    assert report.among(["ours"])["one"][0] == 1.5, "a tie counts half"


def test_simple_models_stand_on_the_page_where_ours_is_not_first(monkeypatch):
    monkeypatch.setattr("bakeoff.page.BASELINES", {"peer: algorithm": "a peer", "floor": "chance"})
    text = baselines(_report())
    assert "mean rank of 3 over the 2 tables that all of them play is **1.50**" in text
    assert "| two | 2 | -10.1 | +39.9 |" in text
    assert "| one |" not in text, "ours is first there"
    monkeypatch.setattr("bakeoff.page.BASELINES", {"nobody": "nobody"})
    assert baselines(_report()) == ""


def test_the_page_says_first_where_we_lose():
    text = losses(_report())
    assert "| two | Peer | algorithm (alpha 1) | 0.601 | 0.702 | -0.101 ± 0.002 | yes |" in text
    assert "| one |" not in text


def test_a_page_without_losses_says_so():
    report = _report()
    assert "On no table" in losses(Report(report.tables[:1], LIBRARIES))


def test_tables_show_the_best_in_bold_and_their_notes():
    text = results(_report(), "classes")
    assert "| one | 50×2/3 | **0.901** | 0.802 | 0.702 |" in text
    assert "- one, two: a note." in text
    assert results(_report(), "trial") == ""


def test_ours_is_counted_against_each_peer():
    text = pairs(_report())
    assert "| Peer | 1 (1) | 0 (0) | 1 (1) | 2.00 ms | 3 MB |" in text
    assert "| Ours | – | – | – | 2.00 ms | 3 MB |" in text


def test_settings_that_were_played_stand_once_for_those_who_share_them():
    assert "| Peer | algorithm | alpha 1 | 2 |" in settings(_report())
    assert in_short(["0.1", "0.2", "1", "2", "10"]) == "0.1 … 10 (5)"
    assert in_short(["0.1", "0.2"]) == "0.1, 0.2"


def test_losses_are_normalised_between_chance_and_full_information():
    assert "| one | 0.11 | 0.33 |" in skylines(_report())


def test_drivers_are_compared_if_they_were_measured(tmp_path):
    path = tmp_path / "checks.json"
    assert drivers(path) == ""
    path.write_text(
        '[{"table": "one", "entry": "greedy", "driver": "by_us", "rewards": [0.5, 0.7]},'
        '{"table": "one", "entry": "greedy", "driver": "by_cbify", "rewards": [0.6, 0.6]}]'
    )
    assert "| one | greedy | 0.600 ± 0.141 | 0.600 ± 0.000 |" in drivers(path)


def test_figures_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    from bakeoff.figures import draw_curves, draw_ranks, draw_speed

    report = _report()
    draw_ranks(report.ranking(), tmp_path / "ranks.svg")
    draw_speed(report, tmp_path / "speed.svg")
    draw_curves(report, tmp_path / "curves.svg")
    assert all("Ours" in (tmp_path / name).read_text() for name in ("ranks.svg", "speed.svg", "curves.svg"))
    first = (tmp_path / "ranks.svg").read_bytes()
    draw_ranks(report.ranking(), tmp_path / "ranks.svg")
    assert (tmp_path / "ranks.svg").read_bytes() == first, "the same records give the same file"


def test_markdown():
    assert markdown(("a", "b"), [("1", "2")]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"


def test_the_page_says_how_much_was_played():
    extent = Extent(horizon=2000, large=1000, shuffles_of_large=3, screening=1)
    assert shuffles(extent) == "10 times (3 from 1,000 rows on)"
    assert shuffles(Extent(shuffles=1)) == "once"
    assert "--horizon 2000 --large 1000 --shuffles-of-large 3 --screening 1" in command(extent)


def test_full_information_is_compared_on_the_shuffles_that_it_played():
    records = [
        Record(
            Cell("one", library, "uniform" if library == "floor" else "algorithm", {}, seed, 50), 50, reward, 0.1, 3.0
        )
        for library, rewards in {"ours": (0.8, 0.9), "peer": (0.7, 0.9), "floor": (0.5, 0.4), "skyline": (1.0,)}.items()
        for seed, reward in enumerate(rewards)
    ]
    found = results_of(records, 2, {"skyline": 1, "ours": None})
    assert {result.library for result in found} == set(LIBRARIES) - {"other"}
    assert "skyline" not in {result.library for result in results_of(records, 2)}
    table = TableReport(_report().tables[0].table, _report().tables[0].problem, 50, 2, found)
    text = skylines(Report([table], LIBRARIES))
    assert "the median over 1 tables is 0.40 for ours and 0.60 for the best peer" in text
    assert "| one | 0.40 | 0.60 |" in text


def test_a_library_may_play_the_first_shuffles_only():
    table = problem(np.zeros((50, 2)), [0, 1], np.eye(3)[np.arange(50) % 3])
    extent = Extent(horizon=20, shuffles=4, screening=1, finalists=1)
    library = Library("Slow", "slow", (), (Entry("algorithm", _never, grid(alpha=(1, 2))),), most_shuffles=2)
    first = first_cells("one", table, library, extent)
    assert [cell.seed for cell in first] == [0, 0]
    records = [Record(cell, 20, 0.1 * cell.settings["alpha"], 0.1, 3.0) for cell in first]
    assert [cell.seed for cell in final_cells("one", table, library, extent, records)] == [1]


def test_the_page_counts_what_survives_the_correction_and_what_was_looked_at():
    report = _report()
    # four comparisons: p is about 1e-4 for both tables of Peer and for one of Other, 0.06 for the other
    assert len(report.corrected) == 4
    assert report.corrected == {
        ("one", "peer"): "win",
        ("one", "other"): "win",
        ("two", "peer"): "loss",
        ("two", "other"): "draw",
    }
    looked_at = [
        replace(report.tables[0], table=replace(report.tables[0].table, is_development=True)),
        report.tables[1],
    ]
    text = standing(Report(looked_at, LIBRARIES))
    assert "is **2.00 over 2 tables, 1 of which it was designed on**; over the other 1, " in text
    assert "(below), it is 3.00." in text
    assert "Over the 2 tables that all 3 play it is **2.00**." in text
    assert "over all 4 comparisons" in text
    assert "better than Peer on 1 and worse on 1, than Other on 1 and worse on 0." in text


def test_the_page_tells_every_result_of_the_sealed_tables():
    outcome = outcome_of(_report(), ["river"])
    content = {
        "tables": dict.fromkeys(map(str, range(15)), "digest"),
        "releases": [
            {"release": "1.0", "sources": "abc", "tables": [], "outcome": asdict(outcome)},
            {"release": "1.1", "sources": "def", "tables": [], "outcome": None},
        ],
    }
    text = sealed(content)
    assert "15 further tables" in text
    assert "**1.0** (sources abc). 2 tables: our mean rank is 2.00 ± 1.00, one standard error" in text
    assert "Peer 1.50, Ours 2.00, Other 2.50" in text
    assert "Peer 1 and 1" in text
    assert "Not played: river." in text
    assert "**1.1** (sources def) was begun and not finished." in text
    assert "not been played yet" in sealed({"tables": {}, "releases": []})
