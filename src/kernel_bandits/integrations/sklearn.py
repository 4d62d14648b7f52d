"""A scikit-learn regressor over the posterior of EK-UCB."""

from typing import Any, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike

from kernel_bandits.arrays import FloatArray
from kernel_bandits.dictionaries import DictionaryRule, Fixed, Kors, PosteriorVariance
from kernel_bandits.dictionaries.base import HistoryMode
from kernel_bandits.errors import InputError, needs
from kernel_bandits.kernels import KernelLike
from kernel_bandits.numerics.linalg import threads_for
from kernel_bandits.policy.policy import MANY_ROWS
from kernel_bandits.policy.ucb import ROWS_AT_ONCE
from kernel_bandits.posterior.base import Posterior
from kernel_bandits.presets import ek_ucb

with needs("scikit-learn", "kernel-bandits[sklearn]"):
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.utils import check_random_state, gen_batches
    from sklearn.utils.validation import check_is_fitted, validate_data


class NystromRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """Kernel ridge regression carried by a dictionary of training points, with standard deviations; learns online.

    The Gaussian process of ``GaussianProcessRegressor(kernel, alpha=regularization, optimizer=None)`` projected on m
    anchors: O(m²) per predicted row and per learned row. ``fit`` starts over, ``partial_fit`` continues. Only
    ``normalize_y=True`` uses the first batch as a whole; without it, the result does not depend on how the data are
    divided into batches.

    Args:
        kernel: covariance of rows, ours or one of ``sklearn.gaussian_process.kernels``, whose hyper-parameters stay as
            they are. None for one that is learned with the noise, as by :func:`ek_ucb`: constant, linear and smooth
            parts, at rounds 4, 6, 9, ….
        regularization: the λ of the ridge; the noise variance in the units of the target that the model sees. Learned
            with the kernel if none is given.
        normalize_y: whether to subtract the mean from the target and divide it by its standard deviation. Both are
            those of the first batch, of ``fit`` or of ``partial_fit``, and stay: give a stream a first batch that shows
            its level and spread, or turn this off; the model then expects 0 far from all data.
        dictionary: ``"kors"``, ``"posterior_variance"``, or rows of shape (m, d) that stay the dictionary for good.
        leverage_regularization: the μ at which leverage scores are taken; λ unless given. Larger means fewer anchors.
        leverage_accuracy: the ε in the factor 1 + ε on the score.
        oversampling: the γ in p = min(1, γτ). Larger means more anchors.
        max_dictionary_size: hard cap on m.
        history: ``"all"`` keeps the training rows; ``"none"`` keeps nothing that grows with them.
        random_state: of the coins that choose anchors; an int, a ``RandomState`` or None.

    Attributes:
        posterior_: the :class:`~kernel_bandits.posterior.Posterior` of the target the model sees.
        y_mean_: the number subtracted from the target.
        y_scale_: the number it is divided by.
        n_features_in_: d.
    """

    def __init__(
        self,
        kernel: KernelLike | None = None,
        *,
        regularization: float = 0.1,
        normalize_y: bool = True,
        dictionary: str | ArrayLike = "kors",
        leverage_regularization: float | None = None,
        leverage_accuracy: float = 0.5,
        oversampling: float = 2.0,
        max_dictionary_size: int | None = None,
        history: HistoryMode = "all",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.kernel = kernel
        self.regularization = regularization
        self.normalize_y = normalize_y
        self.dictionary = dictionary
        self.leverage_regularization = leverage_regularization
        self.leverage_accuracy = leverage_accuracy
        self.oversampling = oversampling
        self.max_dictionary_size = max_dictionary_size
        self.history = history
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn rows X (n, d) and their targets y (n,), forgetting any before."""
        return self._learn(X, y, anew=True)

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn further rows X (n, d) and their targets y (n,)."""
        return self._learn(X, y, anew=not hasattr(self, "posterior_"))

    def _learn(self, X: ArrayLike, y: ArrayLike, anew: bool) -> Self:
        rows, targets = validate_data(self, X, y, dtype=np.float64, y_numeric=True, reset=anew)
        targets = targets.astype(np.float64)
        if anew:
            self.posterior_: Posterior = self._build()
            self.y_mean_: float = float(targets.mean()) if self.normalize_y else 0.0
            # A constant target has no spread to divide by.
            self.y_scale_: float = (float(targets.std()) or 1.0) if self.normalize_y else 1.0
        with threads_for(self.posterior_.dictionary_size, MANY_ROWS):
            self.posterior_ = self.posterior_.learned(rows, (targets - self.y_mean_) / self.y_scale_)
        return self

    def _build(self) -> Posterior:
        """Return the posterior of a new EK-UCB policy."""
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        return ek_ucb(self.kernel, regularization=self.regularization, dictionary=self._rule(), seed=seed).posterior

    def _rule(self) -> DictionaryRule:
        """Return the rule that the parameters describe; they are flat, so that a grid search reaches them."""
        if not isinstance(self.dictionary, str):
            return Fixed(self.dictionary, self.history)
        options: dict[str, Any] = {
            "oversampling": self.oversampling,
            "leverage_accuracy": self.leverage_accuracy,
            "max_size": self.max_dictionary_size,
            "history": self.history,
        }
        if self.dictionary == "posterior_variance":
            return PosteriorVariance(**options)
        if self.dictionary == "kors":
            return Kors(leverage_regularization=self.leverage_regularization, **options)
        raise InputError(
            f"dictionary: expected 'kors', 'posterior_variance' or an array of rows, got {self.dictionary!r}."
        )

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[False] = False) -> FloatArray: ...

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[True]) -> tuple[FloatArray, FloatArray]: ...

    def predict(self, X: ArrayLike, return_std: bool = False) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Return the expected target of rows X (n, d), shape (n,), in the units of y.

        With ``return_std`` also return the posterior standard deviation of the expected target, without the noise.
        """
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        parts = [self.posterior_.predict(rows[batch]) for batch in gen_batches(len(rows), ROWS_AT_ONCE)]
        mean = self.y_mean_ + self.y_scale_ * np.concatenate([part.mean for part in parts])
        if not return_std:
            return mean
        return mean, self.y_scale_ * np.concatenate([part.std for part in parts])
