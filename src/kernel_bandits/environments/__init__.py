"""Test problems for policies: contexts, offered actions, and rewards whose expectation is known.

Swappable: the paper's :class:`Bump`, :class:`Chessboard` and :class:`StepDiagonal`, and :class:`MovingOptimum`, in
which the best action follows the context; :class:`MovingPeak` is the same with a box of actions.
"""

from kernel_bandits.environments.base import ContinuousEnvironment, Environment, Round
from kernel_bandits.environments.moving import MovingOptimum, MovingPeak
from kernel_bandits.environments.paper import Bump, Chessboard, StepDiagonal

__all__ = [
    "Bump",
    "Chessboard",
    "ContinuousEnvironment",
    "Environment",
    "MovingOptimum",
    "MovingPeak",
    "Round",
    "StepDiagonal",
]
