"""What a policy decides: the choice of a rule, the decision a caller sees, and the last choice kept for its update."""

from dataclasses import asdict, dataclass, fields
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray


@dataclass(slots=True)
class Choice:
    """What :meth:`Policy.choose` returns: one of the offered points.

    Attributes:
        index: its row.
        mean: its expected reward.
        std: the posterior standard deviation of its expected reward.
        upper_bound: the value it was chosen for.
        propensity: the probability with which it was chosen; None if nothing was drawn.
        computed: what :meth:`Policy.learn` can use again if this point is played; None if there is nothing.
        probabilities: of every offered point, shape (A,); None if nothing was drawn.
        safe: whether it is known to keep all constraints; None without constraints.
    """

    index: int
    mean: float = 0.0
    std: float = 0.0
    upper_bound: float = 0.0
    propensity: float | None = None
    computed: Any = None
    probabilities: FloatArray | None = None
    safe: bool | None = None


# The last choice of ``select``, of use until the model changes, so that its update computes nothing twice: as
# :meth:`Policy.choose` returned it, the chosen joint point (d,), and the version of the model that chose it.
LastChoice: TypeAlias = tuple[Choice | None, FloatArray, int]
NOTHING_CHOSEN: LastChoice = (None, np.empty(0), -1)


@dataclass(slots=True, eq=False)
class Decision:
    """The action to play and what the policy believed about it.

    Attributes:
        index: its row among the offered actions; −1 if a box was offered, which has no rows.
        action: the action itself, shape (d_a,).
        mean: its expected reward.
        std: the posterior standard deviation of its expected reward.
        upper_bound: its upper confidence bound; under a UCB rule the largest of all offered actions, unless it was
            drawn by an exploration floor or played because it was played too rarely. Under Thompson sampling the value
            that was drawn for it.
        context: the context it was chosen for, shape (d_x,).
        propensity: the probability with which it was chosen, if the policy chooses at random among finitely many
            actions; otherwise None.
        id: the number by which :meth:`Policy.tell` knows it; None unless it comes from :meth:`Policy.ask`.
        probabilities: the probability of every offered action, shape (A,), 0 where a mask left it out; None like the
            propensity, which is the entry at ``index``.
        density: the density with which the action was drawn, if the policy chooses at random in a box; per unit of the
            action's coordinates. Otherwise None.
        safe: whether it is known to keep all constraints; None without constraints.
    """

    index: int
    action: FloatArray
    mean: float
    std: float
    upper_bound: float
    context: FloatArray
    propensity: float | None = None
    id: int | None = None
    probabilities: FloatArray | None = None
    density: float | None = None
    safe: bool | None = None

    def __eq__(self, other: object) -> bool:
        """Return whether all attributes are equal; arrays as a whole."""
        if not isinstance(other, Decision):
            return NotImplemented
        return all(np.array_equal(getattr(self, each.name), getattr(other, each.name)) for each in fields(self))

    __hash__ = None  # type: ignore[assignment]

    def to_dict(self) -> dict[str, int | float | list[float] | None]:
        """Return every attribute as plain numbers and lists, for a log: ``json.dumps(decision.to_dict())``."""
        lists = {"action": self.action.tolist(), "context": self.context.tolist()}
        if self.probabilities is not None:
            lists["probabilities"] = self.probabilities.tolist()
        return {**asdict(self), **lists}


def scattered(probabilities: FloatArray, rows: NDArray[np.intp], count: int) -> FloatArray:
    """Return the probabilities of ``count`` offered actions, of which only some rows may be played."""
    table = np.zeros(count)
    table[rows] = probabilities
    return table
