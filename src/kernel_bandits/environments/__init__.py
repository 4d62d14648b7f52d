"""Test problems for policies: contexts, offered actions, and rewards whose expectation is known.

Swappable: the paper's :class:`Bump`, :class:`Chessboard` and :class:`StepDiagonal`, and :class:`MovingOptimum`, in
which the best action follows the context; :class:`MovingPeak` is the same with a box of actions.
:class:`Table` plays the rows of a table.
"""

from kernel_bandits.environments.base import ContinuousEnvironment, Environment, Round
from kernel_bandits.environments.moving import MovingOptimum, MovingPeak
from kernel_bandits.environments.paper import Bump, Chessboard, StepDiagonal
from kernel_bandits.environments.table import Table

__all__ = [
    "Bump",
    "Chessboard",
    "ContinuousEnvironment",
    "Environment",
    "MovingOptimum",
    "MovingPeak",
    "Round",
    "StepDiagonal",
    "Table",
]
