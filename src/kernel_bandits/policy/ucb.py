"""The upper-confidence-bound rule, written once for every posterior and every radius."""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import repeat
from typing import ClassVar, Literal, Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray, join
from kernel_bandits.boxes.constraints import Constraint, Guards
from kernel_bandits.boxes.density import BoxDensity
from kernel_bandits.boxes.design import BoxDesign, box_of_rows
from kernel_bandits.boxes.search import finalists
from kernel_bandits.confidence import Confidence, require_radius
from kernel_bandits.dictionaries import DictionaryRule, Kors
from kernel_bandits.dictionaries.base import rule_or_none
from kernel_bandits.errors import InputError, UnavailableError
from kernel_bandits.policy.exploration import Exploration, floor_words
from kernel_bandits.policy.policy import Choice, Policy, are_tied, scattered, tie_shares
from kernel_bandits.posterior.base import Posterior
from kernel_bandits.values import evolve

# Points evaluated at once by choose_many: enough for matrix products, few enough for the caches.
ROWS_AT_ONCE = 4096
_KORS = Kors()


@final
class UpperConfidenceBound(Policy):
    """Play argmax mean + β·std/√λ (Algorithm 2 of the paper, and the "Kernel UCB" of its appendix).

    Args:
        posterior: predicts and learns.
        confidence: returns the radius β.
        generator: breaks ties and searches boxes.
        exploration: the floor ε and its generator: with probability ε any offered action is played instead, so that
            every action has a known probability of at least ε/A. In a box the best action is then played within a
            hundredth of the box to either side, so that decisions have a density.
        design: the first actions in a box; None where the kernel is known.
    """

    saved: ClassVar[tuple[str, ...]] = (*Policy.saved, "confidence", "exploration", "design")

    def __init__(
        self,
        posterior: Posterior,
        confidence: Confidence,
        generator: np.random.Generator,
        exploration: Exploration | None = None,
        design: BoxDesign | None = None,
    ) -> None:
        super().__init__(posterior, generator)
        require_radius(confidence, posterior)
        self.confidence: Confidence = confidence
        self.exploration: Exploration | None = exploration
        self.design: BoxDesign | None = design

    def constrained(
        self,
        constraints: Mapping[str, Constraint],
        *,
        safe_actions: ArrayLike | None = None,
        if_unsafe: Literal["error", "flag"] = "error",
        dictionary: DictionaryRule | None = _KORS,
    ) -> Self:
        """Keep measured outputs within limits from the first round on, and return the policy.

        :meth:`update` and :meth:`tell` take the outputs from then on.

        Args:
            constraints: limits by the name of an output: ``{"pressure": Below(8.0, kernel)}``.
            safe_actions: actions known to be safe in every context, shape (n, d_a), to begin with.
            if_unsafe: what to do when no action is known to be safe: an error, or the least unsafe, flagged.
            dictionary: the rule of the posteriors of outputs, or None for exact ones.
        """
        if self.round_index or self.pending:
            raise UnavailableError("constrained: the policy has played already; constrain it before the first round.")
        rule, sequence = rule_or_none(dictionary), self.generator.bit_generator.seed_seq
        guards = Guards.of(constraints, rule, sequence, safe_actions, if_unsafe)
        self._commit(self._state, evolve(self._state, guards=guards))
        return self

    def on_reseed(self, entropy: int) -> None:
        if self.exploration is not None:
            self.exploration.on_reseed(entropy)
        if self.design is not None:
            self.design = self.design.reseeded(entropy)

    @property
    def bonus(self) -> float:
        """How many standard deviations the bound lies above the mean."""
        posterior = self._state.model
        # βσ = β·std/√λ
        return self.confidence.radius(posterior) / math.sqrt(posterior.regularization)

    def shortlist(self, context: FloatArray, box: Box) -> FloatArray:
        first = None if self.design is None else self.design.next_action(self.posterior, context, box)
        if self.guards is not None:
            # the design goes as far as is allowed, and the allowed part grows with it
            return self.guards.shortlist(self.posterior, self.bonus, context, box, self.generator, first)
        if first is not None:
            return first[None, :]
        return finalists(self.posterior, self.bonus, context, box, self.generator)

    def box_of(self, actions: FloatArray) -> Box | None:
        return None if self.design is None else box_of_rows(actions)

    def due_row(self, context: FloatArray, actions: FloatArray) -> int | None:
        posterior, guards, design = self._state.model, self._state.guards, self.design
        assert design is not None
        if guards is None:
            return design.next_row(posterior, context, actions)
        rows = np.flatnonzero(guards.allowed(join(context, actions))[0])
        row = design.next_row(posterior, context, actions[rows]) if len(rows) else None
        return None if row is None else int(rows[row])

    def draw_in_box(self, context: FloatArray, box: Box) -> tuple[FloatArray, float] | None:
        if self.exploration is None:
            return None
        if self.guards is not None:
            raise InputError(
                "exploration_floor: draws any action of a box, also those that constraints forbid; offer rows, "
                "or leave it out."
            )
        rows = self.shortlist(context, box)
        best = self._best(join(context, rows))[0]
        density = BoxDensity.around(box, rows[best.index], self.exploration.floor)
        action = density.draw(self.generator)
        return action, float(density(action[None, :])[0])

    def choose(self, points: FloatArray) -> Choice:
        guards, offered = self._state.guards, points
        if guards is not None:
            allowed, excess = guards.allowed(points)
            rows = np.flatnonzero(allowed)
            if not len(rows):
                guards.require_flag()
                rows = np.array([excess.argmin()])
            offered = points[rows]
        choice, bounds, contenders = self._best(offered)
        if self.exploration is not None:
            choice = self._explored(offered, choice, bounds, contenders, self.exploration)
        if guards is None:
            return choice
        table = choice.probabilities
        if table is not None:
            table = scattered(table, rows, len(points))
        return replace(choice, index=int(rows[choice.index]), probabilities=table, safe=bool(allowed.any()))

    def _best(self, points: FloatArray) -> tuple[Choice, FloatArray, NDArray[np.intp] | None]:
        """Return the point to play; and the bounds of the points that may be played, and their rows.

        It has the largest bound, unless one that was hardly tried in such a place is due.
        """
        posterior, bonus = self._state.model, self.bonus
        contenders, evaluation = posterior.contenders(points, bonus)
        means, stds = evaluation.mean, evaluation.std
        # one standard deviation is the default
        upper_bounds = means + (stds if bonus == 1.0 else bonus * stds)
        row = self.argmax(upper_bounds, posterior.prior_mean)
        # argmax finds a NaN before any number, so if this bound is finite all are.
        if not math.isfinite(upper_bounds.item(row)):
            posterior.require_finite(evaluation)
        index = row if contenders is None else int(contenders[row])
        due = posterior.due(points, means, stds) if posterior.may_be_due and contenders is None else None
        if due is not None:
            row = index = due
        choice = Choice(index, means.item(row), stds.item(row), upper_bounds.item(row), None, (evaluation, row))
        if due is not None:
            return choice, upper_bounds[due : due + 1], np.array([due])
        return choice, upper_bounds, contenders

    def _explored(
        self,
        points: FloatArray,
        best: Choice,
        upper_bounds: FloatArray,
        contenders: NDArray[np.intp] | None,
        exploration: Exploration,
    ) -> Choice:
        """Return the best with probability 1 − ε and otherwise any action, with all probabilities either way."""
        shares = tie_shares(upper_bounds, self.posterior.prior_mean)
        if contenders is not None:
            shares = scattered(shares, contenders, len(points))
        self.will_draw(exploration.generator)
        chosen, row = best, exploration.draw(best.index, len(points))
        if row != best.index:
            evaluation = self.posterior.evaluate_finite(points[row : row + 1])
            mean, std = evaluation.mean.item(0), evaluation.std.item(0)
            chosen = Choice(row, mean, std, mean + self.bonus * std, None, (evaluation, 0))
        # ε/A for every action, and 1 − ε shared among those that tie for the largest bound
        probabilities = exploration.mixed(shares)
        return replace(chosen, propensity=probabilities.item(row), probabilities=probabilities)

    def choose_many(self, points: FloatArray) -> list[Choice]:
        if self._state.guards is not None:
            return [self.choose(offered) for offered in points]
        choices, size = list[Choice](), max(1, ROWS_AT_ONCE // points.shape[1])
        for start in range(0, len(points), size):
            choices += self._choose_block(points[start : start + size])
        return choices

    def _choose_block(self, points: FloatArray) -> list[Choice]:
        """Choose one of the points (n, A, d) in each of n rounds by one matrix product.

        Nothing is played because it was hardly tried: each of n rounds alike would try it.
        """
        with np.errstate(invalid="ignore", over="ignore"):
            evaluation = self.posterior.evaluate(points.reshape(-1, points.shape[2]))
        self.posterior.require_finite(evaluation)
        means, stds = (values.reshape(points.shape[:2]) for values in (evaluation.mean, evaluation.std))
        upper_bounds, level = means + self.bonus * stds, self.posterior.prior_mean
        tied = are_tied(upper_bounds, level)
        counts, rows = tied.sum(axis=1), upper_bounds.argmax(axis=1)
        for row in np.flatnonzero(counts > 1):
            rows[row] = self.argmax(upper_bounds[row], level)
        if self.exploration is None:
            chosen = np.arange(len(points)), rows
            columns = [rows, means[chosen], stds[chosen], upper_bounds[chosen]]
            return [Choice(*values) for values in zip(*(column.tolist() for column in columns), strict=True)]
        # ε/A for every action, and 1 − ε shared among those that tie for the largest bound
        self.will_draw(self.exploration.generator)
        probabilities = self.exploration.mixed(tied / counts[:, None])
        rows = np.array([self.exploration.draw(row, points.shape[1]) for row in rows.tolist()])
        chosen = np.arange(len(points)), rows
        columns = [rows, means[chosen], stds[chosen], upper_bounds[chosen], probabilities[chosen]]
        drawn = zip(*(column.tolist() for column in columns), repeat(None), probabilities, strict=False)
        return [Choice(*values) for values in drawn]

    def __repr__(self) -> str:
        return f"UpperConfidenceBound({self.posterior!r}, {self.confidence!r}{floor_words(self.exploration)})"
