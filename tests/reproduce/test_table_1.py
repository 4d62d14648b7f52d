import json

import numpy as np
import pytest
from kernel_bandits_lab.reproduce.table_1 import figure as table_1
from kernel_bandits_lab.reproduce.table_1 import measurements
from kernel_bandits_lab.reproduce.table_1.measurements import (
    ALGORITHMS,
    Case,
    Measurement,
    cases,
    measure,
    measure_case,
    read,
)

LABELS = [algorithm.label for algorithm in ALGORITHMS]


def made_up(label, seed, time=(3.0, 2.0, 1.0), memory=(2.0, 1.0, 0.5)):
    """Measurements that follow powers of T, m and A exactly, seeds apart by a factor."""
    found = []

    def add(axis, horizon, rounds, size, actions):
        values = [
            (1 + seed) * 1e-9 * np.prod(np.array([[t, size, actions]]) ** np.array([powers]))
            for powers in (time, memory)
            for t in rounds
        ]
        half = len(rounds)
        case = Case(axis, label, horizon, 0.5 * size, actions, seed)
        found.append(
            Measurement(
                case, rounds, tuple(values[:half]), tuple(round(1e15 * v) for v in values[half:]), (size,) * half
            )
        )

    add("T", 800, (100, 200, 400, 800), 50, 10)
    for size in (10, 20, 40, 80):
        add("m", 100, (100,), size, 10)
    for actions in (10, 40, 160):
        add("A", 100, (100,), 50, actions)
    return found


@pytest.mark.parametrize(("quantity", "powers"), [("time", (3.0, 2.0, 1.0)), ("memory", (2.0, 1.0, 0.5))])
def test_exponents_of_powers_are_found(quantity, powers):
    known = [one for seed in range(3) for one in made_up("EK-UCB", seed)]
    for axis, power in zip("TmA", powers, strict=True):
        found = table_1.exponent(known, "EK-UCB", axis, quantity)
        assert found.value == pytest.approx(power, abs=1e-6)
        assert found.high - found.low < 1e-5
    assert np.isnan(table_1.exponent(known, "CBKB", "T", quantity).value)


def test_exponents_above_the_papers_contradict_it(tmp_path):
    folder = tmp_path / "table_1"
    folder.mkdir()
    lines = [one for seed in range(3) for one in made_up("K-UCB, CGP-UCB", seed, time=(4.0, 0.0, 1.0))]
    with (folder / measurements.FILE).open("w") as file:
        file.writelines(json.dumps(measurements.asdict(line)) + "\n" for line in lines)
    time, memory = table_1.claims(folder)[:2]
    assert [finding.outcome for finding in time.findings["measured"]] == [False, True]
    assert memory.verdict == "holds"
    (fitted,) = table_1.tables(folder)
    assert fitted.rows[0][:4] == ("K-UCB, CGP-UCB", "C·T³", "T²", "4.00 ± 0.00 [3]")
    assert len(table_1.figure(folder).axes) == 6


def test_every_algorithm_is_planned_on_every_axis_it_has():
    for quick in (True, False):
        planned = cases(quick)
        assert len(set(planned)) == len(planned)
        for algorithm in ALGORITHMS:
            axes = {case.axis for case in planned if case.algorithm == algorithm.label}
            assert axes == ({"T", "A"} if algorithm.size_horizon is None else {"T", "m", "A"})
    assert set(table_1.PAPER) == set(LABELS)


@pytest.mark.parametrize("label", LABELS)
def test_a_case_is_timed_and_traced_at_the_same_rounds(label):
    found = measure_case(Case("T", label, 40, 0.5, 10, 0))
    assert found.rounds == (5, 10, 20, 40)
    assert all(np.diff(found.seconds) > 0)
    assert all(np.diff(found.peak_bytes) >= 0)
    assert found.peak_bytes[0] > 0
    if label.startswith("K-UCB"):
        assert found.sizes == found.rounds


def test_measuring_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    planned = [Case("A", "EK-UCB", 16, 0.5, actions, 0) for actions in (2, 3, 4)]
    monkeypatch.setattr(measurements, "cases", lambda quick: planned)  # noqa: ARG005
    played = []

    def stopping(case):
        if len(played) == 2:
            raise KeyboardInterrupt
        played.append(case)
        return measure_case(case)

    monkeypatch.setattr(measurements, "measure_case", stopping)
    steps = []
    with pytest.raises(KeyboardInterrupt):
        measure(tmp_path, True, lambda *step: steps.append(step[:2]))
    before = (tmp_path / measurements.FILE).read_text()
    (tmp_path / measurements.FILE).write_text(before[:-20])  # the last line was being written
    played.clear()
    measure(tmp_path, True, lambda *step: steps.append(step[:2]))
    assert played == planned[1:]
    assert [one.case for one in read(tmp_path)] == planned
    assert steps[-1] == (3, 3)
    assert (tmp_path / measurements.FILE).read_text().startswith(before.splitlines()[0])
