"""Algorithms by name that choose at random, so that every action has a probability."""

from __future__ import annotations

from typing import Any

from kernel_bandits.arrays import as_positive
from kernel_bandits.dictionaries import DictionaryRule, Kors
from kernel_bandits.dictionaries.base import rule_or_none
from kernel_bandits.kernels import KernelLike
from kernel_bandits.learning import KernelLearning
from kernel_bandits.policies.assembly import Posteriors, posterior_of, when_learned
from kernel_bandits.policies.by_name import takes_features
from kernel_bandits.policies.exploration import Exploration, as_floor
from kernel_bandits.policies.inverse_gap import InverseGapWeighting
from kernel_bandits.policies.sharpness import InformationSharpness, PowerSharpness, Sharpness
from kernel_bandits.policies.thompson import ThompsonSampling
from kernel_bandits.policies.uniform import Uniform
from kernel_bandits.posteriors import Posterior
from kernel_bandits.rng import Seed, seed_of, stream

_KORS = Kors()
_INFORMATION = InformationSharpness()


def _posterior(
    kernel: KernelLike | None,
    regularization: float,
    learn_kernel: bool | KernelLearning | None,
    dictionary: DictionaryRule | None,
    seed: Seed,
) -> Posterior[Any]:
    """Return the posterior that the options of a preset ask for."""
    learning, rule = when_learned(kernel, learn_kernel), rule_or_none(dictionary)
    rule = rule if learning is None or rule is None else rule.for_learned_kernel()
    return posterior_of(kernel, regularization, learning, Posteriors(rule, seed_of(seed, "coins")), seed)


@takes_features
def thompson_sampling(
    kernel: KernelLike | None = None,
    *,
    regularization: float = 0.1,
    learn_kernel: bool | KernelLearning | None = None,
    scale: float = 1.0,
    number_of_draws: int = 100,
    dictionary: DictionaryRule | None = _KORS,
    exploration_floor: float = 0.0,
    seed: Seed = None,
) -> ThompsonSampling:
    """Thompson sampling on the posterior of EK-UCB, or with ``dictionary=None`` on that of K-UCB.

    Args:
        kernel: as for :func:`ek_ucb`; None for one that is learned.
        regularization: as for :func:`ek_ucb`.
        learn_kernel: as for :func:`ek_ucb`.
        scale: v, standard deviations are multiplied by it; 1 draws from the posterior itself.
        number_of_draws: of which one decides; the others estimate the probabilities.
        dictionary: as for :func:`ek_ucb`, or None for the exact posterior.
        exploration_floor: as for :func:`ek_ucb`; without it an action that wins no draw has probability 0.
        features: the columns of a table, to use it by name; the preset then returns a :class:`TablePolicy`.
        seed: of the draws, coins and tie-breaks.
    """
    posterior = _posterior(kernel, regularization, learn_kernel, dictionary, seed)
    draws = stream(seed, "exploration")
    return ThompsonSampling(posterior, stream(seed, "ties"), draws, scale, number_of_draws, exploration_floor)


@takes_features
def inverse_gap_weighting(
    kernel: KernelLike | None = None,
    *,
    regularization: float = 0.1,
    learn_kernel: bool | KernelLearning | None = None,
    sharpness: float | Sharpness = _INFORMATION,
    effective_actions: int | None = None,
    dictionary: DictionaryRule | None = _KORS,
    exploration_floor: float = 0.0,
    seed: Seed = None,
) -> InverseGapWeighting:
    """Inverse-gap weighting (SquareCB; Foster & Rakhlin 2020) on the mean of EK-UCB's posterior.

    Every action but the best is played with probability 1/(A + γ·gap), so every decision has exact probabilities, or a
    density in a box. Only means are needed, O(m) per action.

    Args:
        kernel: as for :func:`ek_ucb`; None for one that is learned.
        regularization: as for :func:`ek_ucb`.
        learn_kernel: as for :func:`ek_ucb`.
        sharpness: γ, in units of one over the reward: by default a schedule that follows what the model has learned; a
            number c for c·√t, or a :class:`~kernel_bandits.policies.Sharpness`.
        effective_actions: K; where more actions are offered they count as K, and less is explored. By default all rows
            count, and a box counts as 32.
        dictionary: as for :func:`ek_ucb`, or None for the exact posterior.
        exploration_floor: as for :func:`ek_ucb`.
        features: as for :func:`ek_ucb`.
        seed: of the draws, coins and tie-breaks.
    """
    posterior = _posterior(kernel, regularization, learn_kernel, dictionary, seed)
    schedule = sharpness if isinstance(sharpness, Sharpness) else PowerSharpness(as_positive("sharpness", sharpness))
    exploration = Exploration(as_floor(exploration_floor), stream(seed, "exploration"))
    return InverseGapWeighting(posterior, schedule, stream(seed, "ties"), exploration, effective_actions)


@takes_features
def uniform(*, seed: Seed = None) -> Uniform:
    """Uniform play, the baseline that learns nothing.

    Args:
        features: as for :func:`ek_ucb`.
        seed: of the draws.
    """
    return Uniform(stream(seed, "ties"))
