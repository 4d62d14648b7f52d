"""The algorithms by name: each a choice of posterior, dictionary rule and radius."""

from __future__ import annotations

from numpy.typing import ArrayLike

from kernel_bandits.arrays import InputError, as_positive
from kernel_bandits.confidence import Confidence, StandardDeviations
from kernel_bandits.dictionaries import Dictionary, Fixed, Kors, PosteriorVariance
from kernel_bandits.kernels import KernelLike
from kernel_bandits.policies.ucb import UpperConfidenceBound
from kernel_bandits.policies.uniform import Uniform
from kernel_bandits.posteriors import ExactPosterior, NystromPosterior
from kernel_bandits.posteriors.nystrom import HistoryMode
from kernel_bandits.randomness import Seed, stream


def k_ucb(
    kernel: KernelLike,
    *,
    regularization: float = 0.1,
    confidence: Confidence = StandardDeviations(1.0),  # noqa: B008 (immutable)
    seed: Seed = None,
) -> UpperConfidenceBound:
    """K-UCB: the exact posterior, O(t²) per action (Algorithm 3 of the paper).

    Args:
        kernel: covariance of joint points, ours or scikit-learn's.
        regularization: the λ of the ridge; the noise variance in the Gaussian-process view, in squared reward units.
        confidence: the radius β; by default one posterior standard deviation.
        seed: of the tie-breaks.
    """
    return UpperConfidenceBound(ExactPosterior(kernel, regularization), confidence, stream(seed, "ties"))


def ek_ucb(
    kernel: KernelLike,
    *,
    regularization: float = 0.1,
    confidence: Confidence = StandardDeviations(1.0),  # noqa: B008 (immutable)
    leverage_regularization: float | None = None,
    leverage_accuracy: float = 0.5,
    oversampling: float = 2.0,
    max_dictionary_size: int | None = None,
    dictionary: str | ArrayLike = "kors",
    history: HistoryMode = "all",
    seed: Seed = None,
) -> UpperConfidenceBound:
    """EK-UCB: the posterior projected on a dictionary that grows by KORS, O(m²) per action (Algorithm 2 of the paper).

    Args:
        kernel: covariance of joint points, ours or scikit-learn's.
        regularization: the λ of the ridge; the noise variance in the Gaussian-process view, in squared reward units.
        confidence: the radius β; by default one posterior standard deviation.
        leverage_regularization: the μ at which leverage scores are taken; λ unless given. Larger means fewer anchors.
        leverage_accuracy: the ε in the factor 1 + ε on the score.
        oversampling: the γ in p = min(1, γτ). Larger means more anchors.
        max_dictionary_size: hard cap on m. Once it is reached no anchor is added; the posterior goes on learning in the
            span it has, and the standard deviation stays wide outside it.
        dictionary: ``"kors"``, ``"posterior_variance"`` (τ' = (1+ε)σ²/(1+σ²), only at μ = λ), or joint points
            of shape (m, d) that stay the dictionary for good.
        history: ``"all"`` keeps states and rewards, 8(d + 1) bytes a round; ``"none"`` keeps nothing that grows with t.
        seed: of the coins and tie-breaks.
    """
    rule: Dictionary
    if isinstance(dictionary, str):
        options = {
            "leverage_accuracy": leverage_accuracy,
            "oversampling": oversampling,
        }
        if dictionary == "kors":
            mu = (
                as_positive("regularization", regularization)
                if leverage_regularization is None
                else leverage_regularization
            )
            rule = Kors(
                stream(seed, "coins"),
                leverage_regularization=mu,
                max_dictionary_size=max_dictionary_size,
                **options,
            )
        elif dictionary == "posterior_variance":
            if leverage_regularization not in (None, regularization):
                raise InputError(
                    "leverage_regularization: the posterior variance is a leverage score at μ = λ only; "
                    "leave it out, or use dictionary='kors'."
                )
            rule = PosteriorVariance(stream(seed, "coins"), max_dictionary_size=max_dictionary_size, **options)
        else:
            raise InputError(
                f"dictionary: expected 'kors', 'posterior_variance' or an array of points, got {dictionary!r}."
            )
    else:
        rule = Fixed(dictionary)
    posterior = NystromPosterior(kernel, regularization, rule, history)
    return UpperConfidenceBound(posterior, confidence, stream(seed, "ties"))


def uniform(*, seed: Seed = None) -> Uniform:
    """Uniform play, the baseline that learns nothing.

    Args:
        seed: of the draws.
    """
    return Uniform(stream(seed, "ties"))
