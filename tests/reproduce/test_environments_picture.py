from pathlib import Path

import numpy as np
from kernel_bandits_lab.reproduce.environments import figure as picture

from kernel_bandits.environments import Chessboard, StepDiagonal


def test_the_picture_shows_the_expected_rewards():
    rewards = picture.expected_rewards(Chessboard(), 8)
    # rows are actions and columns contexts: the square (¼–½, 0–¼) of (x, a) has reward 1
    np.testing.assert_array_equal(rewards[:2, 2:4], np.ones((2, 2)))
    np.testing.assert_array_equal(rewards[2:4, :2], np.full((2, 2), 0.5))
    np.testing.assert_array_equal(rewards[:2, :2], np.zeros((2, 2)))
    drawn = picture.figure(Path())
    for axes, environment in zip(drawn.axes[:2], (Chessboard(), StepDiagonal()), strict=True):
        np.testing.assert_array_equal(axes.images[0].get_array(), picture.expected_rewards(environment))
        assert axes.get_title() == environment.name


def test_the_published_regret_counts_what_nobody_could_have_earned():
    *_, last = picture.claims(Path())
    (findings,) = last.findings.values()
    # a quarter of Chessboard's contexts offer ½ at most, and another quarter too
    assert [finding.outcome for finding in findings] == [False, False]
    assert "0.250" in findings[0].evidence
    assert "0.035" in findings[1].evidence
