"""Many late rewards at once: actions that were played elsewhere, and rewards that arrive together."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from kernel_bandits.actions import as_log, require_action_columns
from kernel_bandits.arrays import FloatArray
from kernel_bandits.commit import Step
from kernel_bandits.errors import UnavailableError
from kernel_bandits.numerics.blas_threads import threads_for
from kernel_bandits.policies.rounds import Rounds

# A few are counted and learned faster one by one.
FEWEST = 8
# Actions that are counted by one matrix product, and rewards that are learned in one change of the model.
MOST, MOST_REWARDS = 128, 1024


class Together(Rounds):
    """Awaiting and learning of many rewards, at the speed of matrix products where the policy can."""

    @final
    def await_many(self, contexts: ArrayLike, actions: ArrayLike) -> list[int]:
        """Await the rewards of actions that were played already; return the ids that :meth:`tell` knows them by.

        The model is that of :meth:`ask` with these actions alone on offer, up to rounding. Bad input changes nothing.
        If the kernel fails in the middle, the actions before that stay awaited.

        Args:
            contexts: one per row, shape (n, d_x).
            actions: the action that was played in each, shape (n, d_a).
        """
        return self._await_many(contexts, actions)

    def _await_many(self, contexts: ArrayLike, actions: ArrayLike, also: Sequence[Step] = ()) -> list[int]:
        """Call :meth:`await_many`, with steps of a policy around this one."""
        contexts, actions, _ = as_log(contexts, actions, np.zeros(len(np.atleast_1d(contexts))), *self._dimensions)
        points = np.hstack([contexts, actions])
        if self._dimensions[0] is None:
            require_action_columns(actions)
            self._check_first(points, contexts.shape[1])
        dimensions = (contexts.shape[1], actions.shape[1])
        keys = list(range(self._ledger.issued, self._ledger.issued + len(points)))
        start, window = 0, len(points)
        while start < len(points):
            some = slice(start, start + min(window, MOST))
            done = self._await_together(keys[some], points[some], dimensions, also)
            start += done
            if done < len(keys[some]):
                # this one changes the dictionary, or there are few
                self._await_one(keys[start], points[start].copy(), dimensions, also)
                start += 1
            # points behind one that changes the dictionary are evaluated in vain: aim at the gap between two
            window = max(2 * (done + 1), FEWEST)
        return keys

    def _await_together(
        self, keys: Sequence[int], points: FloatArray, dimensions: tuple[int, int], also: Sequence[Step]
    ) -> int:
        """Await as many of the leading points as are counted together; return how many."""
        if len(keys) < FEWEST:
            return 0
        version = self._version()
        try:
            with threads_for(self.dictionary_size, len(keys)) or nullcontext():
                done, planned = self.anticipate_many(keys, points)
            if done:
                stored = (self._store, version + 1, self._rewards_learned, dimensions)
                self._commit(version, planned, [*self._ledger.issue_steps(done), *also, stored])
        except Exception as reason:
            self._require_one_by_one(version, reason)
            return 0
        return done

    def _require_one_by_one(self, version: int, reason: Exception) -> None:
        """Raise unless a joint step failed by itself: one by one, what comes before the failure is kept."""
        self._blame_others(version, reason)
        if isinstance(reason, (MemoryError, UnavailableError)):
            raise reason

    def _await_one(self, key: int, point: FloatArray, dimensions: tuple[int, int], also: Sequence[Step]) -> None:
        version = self._version()
        stored = (self._store, version + 1, self._rewards_learned, dimensions)
        steps = [*self._ledger.issue_steps(), *also, stored]
        self._change_model(version, steps, self.anticipate, key, point, None)

    def _tell_together(self, keys: Sequence[int], rewards: Sequence[float]) -> int:
        """Learn the rewards of as many of the leading open decisions as are learned together; return how many."""
        done = 0
        while len(keys) - done >= FEWEST and not self.learns_outputs:
            version, some = self._version(), keys[done : done + MOST_REWARDS]
            # once more, since another thread may have settled one before the version was read
            self._ledger.require_all_open("tell", some)
            numbers = rewards[done : done + MOST_REWARDS]
            try:
                # the rows of one product
                with threads_for(self.dictionary_size, min(len(some), MOST)) or nullcontext():
                    planned = self.fulfil_many(some, np.array(numbers))
                if planned is None:
                    break
                learned = self._rewards_learned + len(some)
                steps = self._ledger.tell_steps(dict(zip(some, numbers, strict=True)))
                self._commit(version, planned, [*steps, (self._store, version + 1, learned, self._dimensions)])
            except Exception as reason:
                self._require_one_by_one(version, reason)
                break
            done += len(some)
        return done
