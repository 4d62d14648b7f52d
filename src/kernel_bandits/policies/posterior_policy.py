"""What all policies share that play by one posterior: predictions, updates, delayed rewards, explanations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kernel_bandits.actions import Box, pair
from kernel_bandits.arrays import FloatArray, as_count, as_points, as_positive, require_finite
from kernel_bandits.errors import InputError
from kernel_bandits.policies.base import Choice, Decision, Policy
from kernel_bandits.posteriors.base import Evaluation, Posterior, Prediction


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why an action looked good: what the mean is made of, and what was added to it.

    Attributes:
        mean: the expected reward of the decision's action as the policy sees it now.
        exploration: what the decision's bound lay above its mean when it was made: the part that was curiosity. Under
            Thompson sampling, how far the draw lay from the mean, to either side.
        points: the n past points that moved the mean most, shape (n, d), context columns first, strongest first.
        contributions: what each of them adds to the mean, shape (n,).
        rewards: what was earned at them, shape (n,); None where the history is not kept and ``points`` are anchors,
            which speak for all observations around them.
        rest: what all other points add to the mean together.
        prior_mean: what the mean starts from: the expected reward where nothing is known, 0 unless it is learned. The
            contributions are of rewards less the prior mean.
    """

    mean: float
    exploration: float
    points: FloatArray
    contributions: FloatArray
    rewards: FloatArray | None
    rest: float
    prior_mean: float


class PosteriorPolicy(Policy):
    """A policy that plays by one posterior; what is left to say is the rule that chooses.

    Args:
        posterior: predicts and learns.
        ties: the generator that breaks ties.
    """

    def __init__(self, posterior: Posterior[Any], ties: np.random.Generator) -> None:
        super().__init__(ties)
        self.posterior = posterior
        # What select computed for all actions and the row it chose: the update computes nothing of it again.
        self._chosen: tuple[Evaluation, int] | None = None

    @property
    def posteriors(self) -> tuple[Posterior[Any]]:
        return (self.posterior,)

    @property
    def dictionary_size(self) -> int:
        return self.posterior.dictionary_size

    @property
    def dictionary_points(self) -> FloatArray:
        """The anchors, shape (m, d): context columns first."""
        return self.posterior.dictionary_points

    @property
    def observed_points(self) -> FloatArray:
        """Every point played so far, shape (t, d), where the history is kept."""
        return self.posterior.observed_points

    @property
    def round_index(self) -> int:
        return self.posterior.round_index

    @np.errstate(over="ignore")
    def predict(self, context: ArrayLike, actions: ArrayLike) -> Prediction:
        """Mean and standard deviation of the expected reward of each action, arrays of length A; writes nothing."""
        if isinstance(actions, Box):
            raise InputError(
                "actions: predict answers for rows and was given a Box; pass rows, for instance "
                "box.sample(generator, 100), or decision.action[None, :] for the one that select chose."
            )
        return self.posterior.predict(pair(context, actions, *self._dimensions))

    def select_batch(
        self, contexts: ArrayLike, actions: ArrayLike | Box, *, batch_variance_limit: float = 10.0
    ) -> list[Decision]:
        """Decide for the next contexts before any of their rewards comes, as far as that is safe.

        Decisions are pending, as those of :meth:`ask`. The batch ends with the decision at which 1 + Σσ² passes the
        limit, with the paper's σ² as it was when the batch began (Calandriello et al. 2020): the standard deviations
        inside it are then at most √limit below those at its beginning, until that last decision. Coins are flipped
        inside the batch; anchors that come up in it find the history in one pass at its end.

        Args:
            contexts: one per row, shape (n, d_x), in the order in which they are to be served.
            actions: offered in every round, shape (A, d_a), or round by round, shape (n, A, d_a); or a box.
            batch_variance_limit: at least 1; at 1 a batch is one decision.

        Returns:
            Decisions for the first contexts, at least one and at most n; tell their rewards, then go on with the rest.
            A kernel that fails ends the batch; at its first context the error is raised.
        """
        limit = as_positive("batch_variance_limit", batch_variance_limit)
        if limit < 1.0:
            raise InputError(f"batch_variance_limit: expected at least 1, got {batch_variance_limit!r}.")
        offers: Iterable[FloatArray | Box]
        if isinstance(actions, Box):
            contexts, offers = as_points("contexts", contexts, self._dimensions[0]), repeat(actions)
            require_finite("contexts", contexts)
        else:
            contexts, offers = self._rounds(contexts, actions)
        decisions: list[Decision] = []
        total = 1.0
        with self.posterior.batch() as variance:
            for context, offered in zip(contexts, offers, strict=False):
                try:
                    decision = self.ask(context, offered)
                except Exception:
                    # What was decided is pending and must not be lost; the next batch meets the error again.
                    if decisions:
                        break
                    raise
                decisions.append(decision)
                total += variance(np.concatenate((decision.context, decision.action)))
                if total > limit:
                    break
        return decisions

    def explain(self, decision: Decision, count: int = 5) -> Explanation:
        """Which past points speak for a decision, and how much of its bound is exploration.

        Args:
            decision: as :meth:`select` or :meth:`ask` returned it.
            count: how many points to name at most.
        """
        if not isinstance(decision, Decision):
            raise InputError(f"decision: expected what select or ask returned, got {type(decision).__name__}.")
        point = pair(decision.context, decision.action[None, :], *self._dimensions)[0]
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

    def _select_one_by_one(self, points: FloatArray) -> list[Choice]:
        """``_select`` in each of n rounds, leaving what is kept of the last choice as it was."""
        kept = self._chosen
        try:
            return [self._select(offered) for offered in points]
        finally:
            self._chosen = kept

    def _evaluation_of(self, point: FloatArray, chosen: bool) -> tuple[Evaluation, int]:
        """The evaluation of a point and its row there: that of the last select where it is still good."""
        kept = self._chosen
        if chosen and kept is not None and kept[0].round_index == self.posterior.round_index:
            return kept
        return self.posterior.evaluate_finite(point[None, :]), 0

    def _update(self, point: FloatArray, reward: float, chosen: bool) -> None:
        self.posterior.observe(point, reward, *self._evaluation_of(point, chosen))
        self._chosen = None

    def _update_many(self, points: FloatArray, rewards: FloatArray) -> None:
        self.posterior.observe_many(points, rewards)

    def _anticipate(self, key: int, point: FloatArray) -> None:
        self.posterior.anticipate(key, point, *self._evaluation_of(point, chosen=True))
        self._chosen = None

    def _fulfil(self, key: int, reward: float) -> None:
        self.posterior.fulfil(key, reward)
        self._chosen = None

    def _abandon(self, key: int) -> None:
        self.posterior.abandon(key)
        self._chosen = None
