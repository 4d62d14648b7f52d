"""The hooks in which a policy says how it chooses and learns."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np

from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError
from kernel_bandits.policies import ties
from kernel_bandits.policies.decision import Choice
from kernel_bandits.posteriors.base import Posterior


class Hooks(ABC):
    """What a policy implements: :meth:`choose` and :meth:`learn`.

    The others have defaults, to be replaced where a policy can do better. All are given joint points, context columns
    first, that are checked already.

    Attributes:
        generator: breaks ties, and draws whatever else the policy leaves to chance.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self.generator = generator
        self._rewards_learned = 0
        # Points that wait for their reward, if the policy keeps the default hooks for late rewards.
        self._waiting: dict[int, FloatArray] = {}

    @abstractmethod
    def choose(self, points: FloatArray) -> Choice:
        """Choose one of the points (A, d); the model stays as it is."""

    @abstractmethod
    def learn(self, point: FloatArray, reward: float, choice: Choice | None) -> None:
        """Learn the finite reward of the point (d,) that was played; either succeeds or changes nothing.

        The choice is what :meth:`choose` returned, if it chose this point last and the model is still the same;
        otherwise None.
        """

    def learn_weighted(self, point: FloatArray, reward: float, weight: float) -> None:
        """Learn a reward with 1/weight of the noise variance of others; by default a policy takes no weights."""
        del point, reward, weight
        raise InputError(f"weight: {type(self).__name__} takes no weights; leave weight= and noise_variance= out.")

    def fulfil_weighted(self, key: int, reward: float, weight: float) -> None:
        """Learn the reward of an anticipated point, as :meth:`learn_weighted`."""
        self.learn_weighted(self._waiting[key], reward, weight)
        del self._waiting[key]

    def awaited_point(self, key: int) -> FloatArray:
        """Return the anticipated point (d,) of a key."""
        return self._waiting[key]

    def prepare_outputs(
        self,
        point: FloatArray,  # noqa: ARG002 (for constraints)
        outputs: Mapping[str, float] | None,
    ) -> Callable[[], None] | None:
        """Check what was measured at a point (d,), and return what learns it; by default there are no constraints."""
        if outputs is not None:
            raise InputError(f"outputs: {type(self).__name__} has no constraints; leave outputs= out.")
        return None

    def weight_of(self, noise_variance: float) -> float:
        """Return the weight of a reward with this noise variance."""
        return self.posteriors[0].weight_of(noise_variance) if len(self.posteriors) == 1 else 1.0

    def choose_many(self, points: FloatArray) -> list[Choice]:
        """Choose one of the points (n, A, d) in each of n rounds; the model stays as it is."""
        return [self.choose(offered) for offered in points]

    def learn_many(self, points: FloatArray, rewards: FloatArray) -> None:
        """Learn the rewards (n,) of points (n, d) in order."""
        for point, reward in zip(points, rewards.tolist(), strict=True):
            self.learn(point, reward, None)
            self._rewards_learned += 1

    def shortlist(self, context: FloatArray, box: Box) -> FloatArray:
        """Return actions of the box, shape (n, d_a), for :meth:`choose` to choose from; the model stays as it is.

        By default a policy does not choose in a box. The context is finite, and the box has the dimension of the
        actions seen so far.
        """
        raise NotImplementedError

    def anticipate(self, key: int, point: FloatArray, choice: Choice | None) -> None:  # noqa: ARG002 (for models)
        """Take note of a point that is played now and whose reward arrives later; succeed or change nothing.

        By default the point (d,) is kept under its key, and learned when its reward arrives. The choice is as for
        :meth:`learn`.
        """
        self._waiting[key] = point

    def fulfil(self, key: int, reward: float) -> None:
        """Learn the reward of an anticipated point; either succeeds or changes nothing."""
        self.learn(self._waiting[key], reward, None)
        del self._waiting[key]

    def abandon(self, key: int) -> None:
        """Forget an anticipated point whose reward never arrives."""
        del self._waiting[key]

    @property
    def posteriors(self) -> Sequence[Posterior[Any]]:
        """The models the policy uses: one, one per stage, or none."""
        return ()

    @property
    def round_index(self) -> int:
        """The number of rewards learned: t."""
        return self._rewards_learned

    @property
    def dictionary_size(self) -> int:
        """The number of points or features that carry the models: m of a dictionary, t of an exact posterior."""
        return sum(posterior.dictionary_size for posterior in self.posteriors)

    @final
    def argmax(self, values: FloatArray) -> int:
        """Return the index of the largest value; of values that are equal up to rounding, one at random."""
        return ties.argmax(values, self.generator)
