"""Rows that fill a box: with nothing set they are played as the box is."""

import numpy as np
import pytest
from scipy.stats.qmc import Sobol

import kernel_bandits as kb
from kernel_bandits.boxes.design import box_of_rows

BOX = kb.Box({"temperature": (150.0, 250.0), "flow": (0.0, 5.0), "nozzle": ["round", "flat", "slit"]})
ROWS = BOX.at(Sobol(3, scramble=False).random(512))


def test_rows_that_fill_a_box_are_recognised():
    found = box_of_rows(ROWS)
    assert found.labels.tolist() == [0, 1, 2, 2, 2]
    assert found.contains(ROWS).all()
    assert len(found.settings) == 3
    random = np.random.default_rng(0).random((200, 4))
    assert box_of_rows(random).dimension == 4


@pytest.mark.parametrize(
    "rows",
    [
        ROWS[:20],
        np.eye(100),
        np.column_stack([np.linspace(0, 1, 200), np.linspace(0, 1, 200)]),
        np.random.default_rng(0).random((2000, 12)),
        np.ones((100, 2)),
    ],
    ids=["few", "arms", "a line", "many columns", "equal"],
)
def test_other_rows_are_rows(rows):
    assert box_of_rows(rows) is None


def yields(rows, context):
    at = (rows[:, :2] - [150.0, 0.0]) / [100.0, 5.0] - [0.6 + 0.05 * context[0], 0.4]
    return 50.0 + (40.0 - 8.0 * rows[:, 2] - 4.0 * rows[:, 3]) * np.exp(-np.sum(at**2, axis=1) / 0.08)


@pytest.mark.parametrize("table", [False, True], ids=["arrays", "table"])
def test_the_first_rows_fill_the_box_and_the_last_are_best(table):
    policy, rows = kb.ek_ucb(seed=0), ROWS
    if table:
        columns = {"temperature": kb.Numeric(), "flow": kb.Numeric(), "nozzle": kb.Categorical()}
        policy = kb.ek_ucb(features=kb.Features(context={"sensor": kb.Numeric()}, actions=columns), seed=0)
        rows = [BOX.named(row) for row in ROWS]
    generator, short, played = np.random.default_rng(1), [], []
    for _ in range(60):
        context = generator.standard_normal(1)
        decision = policy.ask({"sensor": context[0]} if table else context, rows)
        expected = yields(ROWS, context)
        policy.tell(decision, expected[decision.index] + generator.standard_normal())
        played.append(decision.index)
        short.append(expected.max() - expected[decision.index])
    first = ROWS[played[:12]]
    assert len(set(played[:12])) == 12
    assert np.ptp(first[:, 0]) > 70.0
    assert np.ptp(first[:, 1]) > 3.5
    assert first[:, 2:].any(axis=0).all()
    assert np.mean(short[-15:]) < 4.0
