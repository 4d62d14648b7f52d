"""The environment interface. Environments hold no state: a round is a function of the generators passed in."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from inspect import signature

import numpy as np

from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray, as_points, as_vector
from kernel_bandits.errors import InputError


@dataclass(frozen=True, slots=True)
class Round:
    """A context (d_x,) and the offered actions: rows (A, d_a), or a box of dimension d_a."""

    context: FloatArray
    actions: FloatArray | Box

    def __post_init__(self) -> None:
        object.__setattr__(self, "context", as_vector("context", self.context))
        if not isinstance(self.actions, Box):
            object.__setattr__(self, "actions", as_points("actions", self.actions))

    @property
    def rows(self) -> FloatArray:
        """The offered actions, shape (A, d_a); an error if they are a box."""
        if isinstance(self.actions, Box):
            raise InputError(f"actions: expected rows, and this round offers {self.actions!r}.")
        return self.actions


class Environment(ABC):
    """A contextual bandit problem with a known expected reward.

    The regret of a decision is the largest expected reward over the *offered* actions less that of the chosen one.

    Attributes:
        noise_std: standard deviation of the Gaussian reward noise, in reward units; 0.1 by default.
        lengthscale: a Gaussian lengthscale that suits the expected reward, in the units of contexts and actions; None
            if unknown.
    """

    noise_std: float = 0.1
    lengthscale: float | None = None

    @abstractmethod
    def next_round(self, contexts: np.random.Generator) -> Round:
        """Draw a context and offer actions."""

    @abstractmethod
    def expected_rewards(self, context: FloatArray, actions: FloatArray) -> FloatArray:
        """Return the noise-free reward of each action, shape (A,); policies never see it."""

    def noise(
        self, noise: np.random.Generator, context: FloatArray | None = None, action: FloatArray | None = None
    ) -> float:
        """Draw the reward noise of an action (d_a,) played in a context (d_x,).

        By default it is Gaussian and the same everywhere. Draw as many numbers whatever is played, so that all policies
        meet the same noise.
        """
        del context, action
        return self.noise_std * float(noise.standard_normal())

    def noise_variance(self, context: FloatArray, action: FloatArray) -> float | None:
        """Return the noise variance that is passed to the policy with a reward; None, the default, passes nothing."""
        del context, action
        return None

    @property
    def name(self) -> str:
        """The class name."""
        return type(self).__name__


def noise_takes_play(environment: Environment) -> bool:
    """Return whether ``noise`` of an environment takes the context and the action besides the generator."""
    return type(environment).noise is not Environment.noise and len(signature(environment.noise).parameters) > 1


class ContinuousEnvironment(Environment):
    """An environment that offers boxes and knows where its optimum lies: no finite set of points would show it."""

    @abstractmethod
    def best_action(self, context: FloatArray) -> FloatArray:
        """Return an action of the box with the largest expected reward, shape (d_a,); policies never see it."""
