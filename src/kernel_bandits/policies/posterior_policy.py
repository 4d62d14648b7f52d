"""What policies with one posterior share: predictions, updates, delayed rewards, batches, explanations."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from kernel_bandits.actions import Box, pair
from kernel_bandits.arrays import FloatArray, as_count, as_points, as_positive, require_finite
from kernel_bandits.commit import Step, Steps
from kernel_bandits.errors import InputError
from kernel_bandits.policies.decision import Choice, Decision
from kernel_bandits.policies.export import export
from kernel_bandits.policies.policy import Policy
from kernel_bandits.policies.residuals import TOGETHER, Predicted, Residuals
from kernel_bandits.posteriors.base import Evaluation, Posterior, Prediction
from kernel_bandits.posteriors.basis import AnchorBasis
from kernel_bandits.posteriors.nystrom import NystromPosterior
from kernel_bandits.posteriors.sums import Sums, load_steps

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why an action looked good: the terms of its mean, and the exploration bonus.

    Attributes:
        mean: the expected reward of the decision's action as the policy sees it now.
        exploration: the decision's bound less its mean when it was made. Under Thompson sampling, the draw less the
            mean, of either sign.
        points: the n past points with the largest contributions, shape (n, d), context columns first, largest first.
        contributions: what each of them adds to the mean, shape (n,).
        rewards: the rewards observed at them, shape (n,); None if the history is not kept and ``points`` are anchors,
            which stand for all observations around them.
        rest: what all other points add to the mean together.
        prior_mean: the expected reward far from all data, 0 unless it is learned. The contributions are of rewards less
            the prior mean.
    """

    mean: float
    exploration: float
    points: FloatArray
    contributions: FloatArray
    rewards: FloatArray | None
    rest: float
    prior_mean: float


def take_batch(
    posterior: Posterior[Any], asked: Iterator[T], encoded: Callable[[T], Decision], batch_variance_limit: float
) -> list[T]:
    """Return decisions as they are asked for, until 1 + Σσ² passes the limit, with σ² as it was at the beginning.

    Args:
        posterior: that the decisions anticipate rewards of.
        asked: asks for one decision after the other.
        encoded: returns the decision over arrays that a decision stands for.
        batch_variance_limit: at least 1.
    """
    limit = as_positive("batch_variance_limit", batch_variance_limit)
    if limit < 1.0:
        raise InputError(f"batch_variance_limit: expected at least 1, got {batch_variance_limit!r}.")
    decisions: list[T] = []
    total = 1.0
    with posterior.batch() as variance:
        try:
            for decision in asked:
                decisions.append(decision)
                point = encoded(decision)
                total += variance(np.concatenate((point.context, point.action)))
                if total > limit:
                    break
        except Exception:
            # What was decided is pending and must not be lost; the next batch meets the error again.
            if not decisions:
                raise
    return decisions


class PosteriorPolicy(Policy):
    """A policy with one posterior, for one thread at a time. Subclasses implement only the rule, :meth:`choose`.

    A rule that returns its evaluation of the points and the chosen row there as ``Choice.computed`` spares the update
    the work of evaluating the point again.
    """

    def __init__(self, posterior: Posterior[Any], generator: np.random.Generator) -> None:
        super().__init__(generator)
        self.posterior = posterior
        # The residuals of all rewards but the last ones, and those.
        self._residuals = Residuals()
        self._predicted: list[Predicted] = []

    @property
    def posteriors(self) -> tuple[Posterior[Any]]:
        return (self.posterior,)

    # looked up in C, for every round asks for it
    dictionary_size: int = property(attrgetter("posterior.dictionary_size"))  # type: ignore[assignment]

    @property
    def dictionary_points(self) -> FloatArray:
        """The anchors, shape (m, d): context columns first."""
        return self.posterior.dictionary_points

    @property
    def observed_points(self) -> FloatArray:
        """Every point learned so far, shape (t, d), if the history is kept."""
        return self.posterior.observed_points

    @property
    def round_index(self) -> int:
        return self.posterior.round_index

    @np.errstate(over="ignore")
    def predict(self, context: ArrayLike, actions: ArrayLike) -> Prediction:
        """Return mean and standard deviation of the expected reward of each action, shape (A,); writes nothing."""
        if isinstance(actions, Box):
            raise InputError(
                "actions: predict takes rows and was given a Box; pass rows, for instance "
                "box.sample(generator, 100), or decision.action[None, :] for the one that select chose."
            )
        points = pair(context, actions, *self._dimensions)
        with self._reading():
            return self.posterior.predict(points)

    def select_batch(
        self, contexts: ArrayLike, actions: ArrayLike | Box, *, batch_variance_limit: float = 10.0
    ) -> list[Decision]:
        """Decide for the next contexts before any of their rewards arrives, as far as that is safe.

        Decisions are pending, as those of :meth:`ask`. The batch ends with the decision at which 1 + Σσ² passes the
        limit, with the paper's σ² as it was when the batch began (Calandriello et al. 2020): until that last decision
        the standard deviations shrink by a factor of √limit at most. Coins are flipped inside the batch; the anchors
        drawn in it are fitted to the history in one pass at its end.

        Args:
            contexts: one per row, shape (n, d_x), in the order in which they are to be served.
            actions: offered in every round, shape (A, d_a), or round by round, shape (n, A, d_a); or a box.
            batch_variance_limit: at least 1; at 1 a batch is one decision. σ² is std²/λ, the variance in units of the
                noise: with a kernel of variance 1 and λ = 0.1 a first decision has σ² = 10 and reaches the default at
                once. For exactly n decisions use :meth:`ask_many`.

        Returns:
            Decisions for the first contexts, at least one and at most n; tell their rewards, then pass the remaining
                contexts. A kernel that fails ends the batch; at its first context the error is raised.
        """
        offers: Iterable[FloatArray | Box]
        if isinstance(actions, Box):
            contexts, offers = as_points("contexts", contexts, self._dimensions[0]), repeat(actions)
            require_finite("contexts", contexts)
        else:
            contexts, offers = self._rounds(contexts, actions)
        asked = (self.ask(context, offered) for context, offered in zip(contexts, offers, strict=False))
        return take_batch(self.posterior, asked, lambda decision: decision, batch_variance_limit)

    def export(
        self,
        path: str | os.PathLike[str],
        columns: Sequence[str] | None = None,
        variables: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        """Write mean and standard deviation as a function of context and action to a JSON file.

        A few lines of NumPy or JavaScript evaluate it, without this library. A file of this name is replaced.

        Args:
            path: of the file.
            columns: names of the columns, context columns first; ``column 0`` and so on unless given.
            variables: how the variables of a table become these columns, where there is one; written as they are.
        """
        with self._reading() as require_unchanged:
            export(self.posterior, path, columns, require_unchanged, variables)

    def explain(self, decision: Decision, count: int = 5) -> Explanation:
        """Return the past points that contribute most to a decision's mean, and the exploration in its bound.

        The decision is one of :meth:`select` or :meth:`ask`; at most ``count`` points are returned.
        """
        if not isinstance(decision, Decision):
            raise InputError(f"decision: expected what select or ask returned, got {type(decision).__name__}.")
        point = pair(decision.context, decision.action[None, :], *self._dimensions)[0]
        with self._reading():
            points, contributions, rewards = self.posterior.contributions(point)
            total, prior_mean = float(contributions.sum()), self.posterior.prior_mean
        strongest = np.argsort(-np.abs(contributions), kind="stable")[: as_count("count", count)]
        return Explanation(
            mean=prior_mean + total,
            exploration=decision.upper_bound - decision.mean,
            points=points[strongest],
            contributions=contributions[strongest],
            rewards=None if rewards is None else rewards[strongest],
            rest=total - float(contributions[strongest].sum()),
            prior_mean=prior_mean,
        )

    def learn_sums(self, basis: AnchorBasis, sums: Sums, context_columns: int) -> None:
        """Learn a whole log from its sums in the coordinates of anchors, before anything else."""
        if not isinstance(self.posterior, NystromPosterior):
            raise InputError(f"learn_sums: {type(self.posterior).__name__} has no anchors; use ek_ucb.")
        steps = load_steps(self.posterior.model, basis, sums)
        dimensions = (context_columns, basis.anchors.shape[1] - context_columns)
        version = self._version()
        self._commit(version, steps, [(self._store, version + 1, sums.count, dimensions)])

    def box_steps(self, box: Box) -> Steps:
        return [(self.posterior.within_box, box.low, box.high)]

    def learn(self, point: FloatArray, reward: float, choice: Choice | None) -> Steps:
        evaluation, row = self._evaluation_of(point, choice)
        steps = self.posterior.observe_steps(point, reward, evaluation, row)
        steps.append(self._compare_step(reward, evaluation.mean.item(row), evaluation.std.item(row)))
        return steps

    def _compare_step(self, reward: float, mean: float, std: float) -> Step:
        """Return the step that takes note of a reward and of what was predicted of it."""
        facts, waiting = self.posterior._facts, self._predicted
        changes = len(facts.kernel_changes)
        predicted = (reward, mean, std, facts.regularization, facts.unit, facts.round_index, changes)
        if len(waiting) < TOGETHER:
            return waiting.append, predicted
        return self._forget_predicted, self.residuals.after([predicted])

    def _forget_predicted(self, residuals: Residuals) -> None:
        """Write the residuals of all rewards; may be repeated."""
        self._residuals, self._predicted = residuals, []

    @property
    def residuals(self) -> Residuals:
        """The rewards so far against what was predicted of them."""
        return self._residuals.after(self._predicted)

    def learn_weighted(self, point: FloatArray, reward: float, weight: float) -> Steps:
        return self.posterior.observe_weighted_steps(point, reward, weight)

    def awaited_point(self, key: int) -> FloatArray:
        return self.posterior.awaited_point(key)

    def fulfil_weighted(self, key: int, reward: float, weight: float) -> Steps:
        return self.posterior.fulfil_weighted_steps(key, reward, weight)

    def learn_many(self, points: FloatArray, rewards: FloatArray) -> Iterator[tuple[int, Steps]]:
        return self.posterior.observe_many_steps(points, rewards)

    def anticipate(self, key: int, point: FloatArray, choice: Choice | None) -> Steps:
        return self.posterior.anticipate_steps(key, point, *self._evaluation_of(point, choice))

    def fulfil(self, key: int, reward: float) -> Steps:
        compared = self._compare_step(reward, *self.posterior.predict_awaited(key))
        return [*self.posterior.fulfil_steps(key, reward), compared]

    def anticipate_many(self, keys: Sequence[int], points: FloatArray) -> tuple[int, Steps]:
        return self.posterior.anticipate_many_steps(keys, points)

    def fulfil_many(self, keys: Sequence[int], rewards: FloatArray) -> Steps | None:
        found = self.posterior.fulfil_many_steps(keys, rewards)
        if found is None:
            return None
        compared = self.residuals.after_many(rewards, found.means, found.stds, self.posterior._facts)
        return [*found.steps, (self._forget_predicted, compared)]

    def abandon(self, key: int) -> Steps:
        return self.posterior.abandon_steps([key])

    def abandon_many(self, keys: Sequence[int]) -> Iterator[tuple[int, Steps]]:
        return self.posterior.abandon_many_steps(keys)

    def _evaluation_of(self, point: FloatArray, choice: Choice | None) -> tuple[Evaluation, int]:
        """Return an evaluation that holds the point, and its row there: that of its choice if there is one."""
        if choice is not None and choice.computed is not None:
            evaluation, row = choice.computed
            if evaluation.round_index == self.posterior._facts.round_index:
                return evaluation, row
        return self.posterior.evaluate_finite(point[None, :]), 0
