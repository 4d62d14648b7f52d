"""The hooks in which a policy says how it chooses and learns."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, final

import numpy as np

from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray
from kernel_bandits.commit import Steps
from kernel_bandits.errors import InputError
from kernel_bandits.policies import ties
from kernel_bandits.policies.decision import Choice
from kernel_bandits.posteriors.base import Posterior


class Hooks(ABC):
    """What a policy implements: :meth:`choose` and :meth:`learn`.

    The others have defaults, to be replaced where a policy can do better. All are given joint points, context columns
    first, that are checked already.

    A hook that changes the model either does so and returns None, or prepares the change, writes nothing and returns
    its steps. Steps are carried out together with the policy's own, so that an interrupt cannot part them.

    Attributes:
        generator: breaks ties, and draws whatever else the policy leaves to chance.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self.generator = generator
        self._rewards_learned = 0
        # Points that wait for their reward, if the policy keeps the default hooks for late rewards.
        self._waiting: dict[int, FloatArray] = {}
        # Generators that a choice draws from, with their states before it.
        self._drawn_from: list[tuple[np.random.Generator, Any]] = []

    @abstractmethod
    def choose(self, points: FloatArray) -> Choice:
        """Choose one of the points (A, d); the model stays as it is."""

    @abstractmethod
    def learn(self, point: FloatArray, reward: float, choice: Choice | None) -> Steps | None:
        """Learn the finite reward of the point (d,) that was played; either succeeds or changes nothing.

        The choice is what :meth:`choose` returned, if it chose this point last and the model is still the same;
        otherwise None.
        """

    def learn_weighted(self, point: FloatArray, reward: float, weight: float) -> Steps | None:
        """Learn a reward with 1/weight of the noise variance of others; by default a policy takes no weights."""
        del point, reward, weight
        raise InputError(f"weight: {type(self).__name__} takes no weights; leave weight= and noise_variance= out.")

    def fulfil_weighted(self, key: int, reward: float, weight: float) -> Steps | None:
        """Learn the reward of an anticipated point, as :meth:`learn_weighted`."""
        return [*(self.learn_weighted(self._waiting[key], reward, weight) or ()), (self._waiting.pop, key, None)]

    def weight_of(self, noise_variance: float) -> float:
        """Return the weight of a reward with this noise variance; 1 where a policy has no model to learn it."""
        return self.posteriors[0].weight_of(noise_variance) if len(self.posteriors) == 1 else 1.0

    def awaited_point(self, key: int) -> FloatArray | None:
        """Return the anticipated point (d,) of a key."""
        return self._waiting.get(key)

    def box_steps(self, box: Box) -> Steps:
        """Return the steps that take note of a box from which an action was chosen; by default none."""
        del box  # what is learned need not depend on it
        return []

    def output_steps(self, point: FloatArray | None, outputs: Mapping[str, float] | None) -> Steps:
        """Check what was measured at a point (d,) and return what learns it; by default there are no constraints."""
        del point  # for constraints
        if outputs is not None:
            raise InputError(f"outputs: {type(self).__name__} has no constraints; leave outputs= out.")
        return []

    def choose_many(self, points: FloatArray) -> list[Choice]:
        """Choose one of the points (n, A, d) in each of n rounds; the model stays as it is."""
        return [self.choose(offered) for offered in points]

    def learn_many(self, points: FloatArray, rewards: FloatArray) -> Iterable[tuple[int, Steps | None]] | None:
        """Learn the rewards (n,) of points (n, d) in order.

        Return None if that is done, or parts of it to carry out one after the other: the number of rewards of each
        part and its steps.
        """
        return ((1, self.learn(point, reward, None)) for point, reward in zip(points, rewards.tolist(), strict=True))

    def shortlist(self, context: FloatArray, box: Box) -> FloatArray:
        """Return actions of the box, shape (n, d_a), for :meth:`choose` to choose from; the model stays as it is.

        By default a policy does not choose in a box. The context is finite, and the box has the dimension of the
        actions seen so far.
        """
        raise NotImplementedError

    def draw_in_box(self, context: FloatArray, box: Box) -> tuple[FloatArray, float] | None:
        """Draw an action (d_a,) of the box, and return it with its density; None to choose from :meth:`shortlist`.

        The draws come from :attr:`generator`, which is restored if the call fails. The model stays as it is.
        """
        del context, box  # by default nothing is drawn
        return None

    def anticipate(self, key: int, point: FloatArray, choice: Choice | None) -> Steps | None:
        """Take note of a point that is played now and whose reward arrives later; succeed or change nothing.

        By default the point (d,) is kept under its key, and learned when its reward arrives. The choice is as for
        :meth:`learn`.
        """
        del choice  # for models
        return [(self._waiting.__setitem__, key, point)]

    def fulfil(self, key: int, reward: float) -> Steps | None:
        """Learn the reward of an anticipated point; either succeeds or changes nothing."""
        return [*(self.learn(self._waiting[key], reward, None) or ()), (self._waiting.pop, key, None)]

    def anticipate_many(self, keys: Sequence[int], points: FloatArray) -> tuple[int, Steps]:
        """Prepare :meth:`anticipate` of the leading of n points (n, d) together: how many, and the steps.

        By default 0: they are anticipated one by one.
        """
        del keys, points  # for models
        return 0, []

    def fulfil_many(self, keys: Sequence[int], rewards: FloatArray) -> Steps | None:
        """Prepare :meth:`fulfil` of several points together; by default None: they are fulfilled one by one."""
        del keys, rewards  # for models
        return None

    @property
    def learns_outputs(self) -> bool:
        """Whether measured outputs are learned beside rewards."""
        return False

    def abandon(self, key: int) -> Steps | None:
        """Forget an anticipated point whose reward never arrives."""
        return [(self._waiting.pop, key, None)]

    def abandon_many(self, keys: Sequence[int]) -> Iterable[tuple[int, Steps | None]]:
        """Forget several anticipated points, part by part as :meth:`learn_many`."""
        return ((1, self.abandon(key)) for key in keys)

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
    def argmax(self, values: FloatArray, level: float = 0.0) -> int:
        """Return the index of the largest value; of values that are equal up to rounding, one at random.

        The level is what all values share, such as a prior mean: it does not count in how close they are.
        """
        best, tied = ties.contenders(values, level)
        if tied is None:
            return best
        self.will_draw(self.generator)
        return int(tied[self.generator.integers(len(tied))])

    @final
    def will_draw(self, *generators: np.random.Generator) -> None:
        """Call this before a choice draws at random: one that fails or is interrupted then leaves them as they were."""
        for generator in generators:
            if not any(generator is known for known, _ in self._drawn_from):
                self._drawn_from.append((generator, generator.bit_generator.state))
