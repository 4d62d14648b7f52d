"""What a policy over a table returns: decisions, explanations and diagnostics with names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.features.offers import Action
from kernel_bandits.features.rows import Row, RowLike, as_row
from kernel_bandits.features.translator import Translator
from kernel_bandits.features.values import Level, is_gap
from kernel_bandits.policies.decision import Decision
from kernel_bandits.policies.diagnostics import Diagnostics
from kernel_bandits.policies.posterior_policy import Explanation


def as_plain(value: Any) -> Any:
    """Return a value of a table as JSON has it: gaps as None, dates as text, arrays as lists."""
    if type(value) is str:
        return value
    if is_gap(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): as_plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [as_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, date):
        return value.isoformat()
    return value if isinstance(value, (str, int, float, bool)) else str(value)


def _words(value: Any) -> str:
    """Return a row, an action or one of their values, for people to read."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_words(item)}" for key, item in value.items())
    plain = as_plain(value)
    if isinstance(plain, float):
        return f"{plain:.4g}"
    return "missing" if plain is None else "…" if isinstance(plain, list) else str(plain)


@dataclass(slots=True)
class NamedDecision:
    """The action to play, by name, and what the policy believed of it.

    Attributes:
        index: its place among the offered actions; −1 where a box was offered.
        arm: the name of the arm; None where actions are described by features alone.
        action: as it was offered: the name of an arm, or a row of features.
        context: the row that it was chosen for.
        mean: its expected reward.
        std: the posterior standard deviation of its expected reward.
        upper_bound: its upper confidence bound, or the value that was drawn for it.
        propensity: the probability with which it was chosen, where the policy chooses at random; else None.
        id: what ``tell`` names it by; None unless it comes from ``ask``.
        encoded: the decision over arrays that it stands for.
        settled: whether the encoding of the row is final; it is not while one of its levels was never learned.
    """

    index: int
    arm: Level | None
    action: Action
    context: Row
    mean: float
    std: float
    upper_bound: float
    propensity: float | None
    id: int | None
    encoded: Decision = field(repr=False)
    settled: bool = field(repr=False)

    @property
    def probabilities(self) -> FloatArray | None:
        """The probability of every offered action, in their order, shape (A,); None like the propensity."""
        return self.encoded.probabilities

    @property
    def density(self) -> float | None:
        """The density with which the action was drawn from a box, in encoded units; otherwise None."""
        return self.encoded.density

    @property
    def safe(self) -> bool | None:
        """Whether it is known to keep all constraints; None without constraints."""
        return self.encoded.safe

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the encoding as plain data, for a log: ``json.dumps(decision.to_dict())``."""
        numbers = ("mean", "std", "upper_bound", "propensity", "id", "probabilities", "density", "safe")
        names = ("index", "arm", "action", "context", *numbers)
        return {name: as_plain(getattr(self, name)) for name in names}


def named_decision(
    translator: Translator, decision: Decision, context: RowLike, offered: Sequence[Action], settled: bool
) -> NamedDecision:
    """Return a decision over arrays by name.

    Args:
        translator: encoded the row and the actions.
        decision: as the policy over arrays made it.
        context: the row it was made for.
        offered: the actions on offer; none where a box was offered.
        settled: whether row and actions are encoded like this for good.
    """
    if decision.index < 0:
        action = translator.read_action(decision.action)
        assert action is not None
    else:
        action = offered[decision.index]
    if type(action) is dict:
        action = dict(action)
    elif type(action) is not str and not np.isscalar(action):
        action = dict(as_row("actions", action))
    return NamedDecision(
        decision.index,
        translator.arm_of(action),
        action,
        dict(context) if type(context) is dict else dict(as_row("context", context)),
        decision.mean,
        decision.std,
        decision.upper_bound,
        decision.propensity,
        decision.id,
        decision,
        settled,
    )


@dataclass(frozen=True, slots=True)
class PastRound:
    """A past round, or an anchor, that speaks for a decision.

    Attributes:
        context: its row, as far as it can be told from its encoding.
        action: the arm or the row that was played, likewise.
        contribution: what it adds to the mean.
        reward: what was earned; None for an anchor, which speaks for all rounds around it.
    """

    context: Row
    action: Action | None
    contribution: float
    reward: float | None


@dataclass(frozen=True, slots=True)
class NamedExplanation:
    """Why an action looked good, in the words of the table.

    Attributes:
        arm: the name of the arm that was chosen; None where actions are described by features alone.
        mean: the expected reward of the decision's action as the policy sees it now.
        exploration: what the decision's bound lay above its mean when it was made: the part that was curiosity.
        rounds: the past rounds that moved the mean most, strongest first.
        rest: what all other rounds add to the mean together.
        prior_mean: what the mean starts from.
    """

    arm: Level | None
    mean: float
    exploration: float
    rounds: tuple[PastRound, ...]
    rest: float
    prior_mean: float

    def __str__(self) -> str:
        """Return one line for each part of the mean."""
        lines = [
            f"expected reward {self.mean:.4g}" + ("" if self.arm is None else f" of {self.arm!r}"),
            f"exploration {self.exploration:+.4g}",
            f"{self.prior_mean:+.4g} before any reward",
        ]
        for past in self.rounds:
            earned = "" if past.reward is None else f", which earned {past.reward:.4g}"
            lines.append(f"{past.contribution:+.4g} from {_words(past.action)} for {_words(past.context)}{earned}")
        return "\n".join([*lines, f"{self.rest:+.4g} from all other rounds"])


def named_explanation(translator: Translator, found: Explanation, arm: Level | None) -> NamedExplanation:
    """Return an explanation of an arm over arrays by name."""
    rewards = [None] * len(found.points) if found.rewards is None else found.rewards.tolist()
    rounds = tuple(
        PastRound(row, action, contribution, reward)
        for (row, action), contribution, reward in zip(
            translator.decode(found.points), found.contributions.tolist(), rewards, strict=True
        )
    )
    return NamedExplanation(arm, found.mean, found.exploration, rounds, found.rest, found.prior_mean)


@dataclass(frozen=True, slots=True)
class NamedDiagnostics:
    """The state of a policy over a table. What :class:`Diagnostics` has can be asked of it directly.

    Attributes:
        model: the diagnostics of the policy over arrays.
        relevance: for each variable, most relevant first, by how much the expected reward changes if the variable is
            taken from another past round and all else stays: the root mean square over √2, in units of the reward. 0
            for a variable that does not matter.
        levels: the arms that are known, and the levels that were met of each column that finds them on the way.
    """

    model: Diagnostics
    relevance: Mapping[str, float]
    levels: Mapping[str, tuple[Level, ...]]

    def __getattr__(self, name: str) -> Any:
        # while an object is being copied it has no model yet
        if name == "model" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.model, name)

    def __str__(self) -> str:
        # what the lengthscales say of columns, the relevance says of variables
        lines = [line for line in str(self.model).split("\n") if not line.startswith("lengthscales")]
        if self.relevance:
            lines.append("relevance: " + ", ".join(f"{name} {value:.3g}" for name, value in self.relevance.items()))
        lines += [f"levels of {name}: {len(levels)}" for name, levels in self.levels.items()]
        return "\n".join(lines)
