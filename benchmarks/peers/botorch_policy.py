"""BoTorch's SingleTaskGP with an upper confidence bound, as a policy of this library, so that one loop runs both."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import botorch
import numpy as np
import torch
from botorch.models.transforms import Normalize, Standardize
from gpytorch.mlls import ExactMarginalLogLikelihood

from kernel_bandits.policy import Choice, Policy
from kernel_bandits.rng import Seed, stream

if TYPE_CHECKING:
    from kernel_bandits.arrays import FloatArray

# Rounds at which hyper-parameters are learned before the first of every REFIT_EVERY: the peer need not wait for it.
EARLY_FITS = (5, 10, 20)
REFIT_EVERY = 50


class BotorchUCB(Policy):
    """SingleTaskGP with its default kernel, priors and transforms; mean plus one posterior standard deviation.

    Between two fits the data are new at every round and the hyper-parameters stay. The first two rounds are random.

    Args:
        seed: of the tie-breaks and the random rounds.
    """

    def __init__(self, seed: Seed) -> None:
        super().__init__(stream(seed, "ties"))
        self._points: list[FloatArray] = []
        self._rewards: list[float] = []
        self._state: dict[str, torch.Tensor] | None = None
        self._model: botorch.models.SingleTaskGP | None = None

    @property
    def dictionary_size(self) -> int:
        return len(self._rewards)

    def choose(self, points: FloatArray) -> Choice:
        if self._model is None:
            return Choice(int(self.generator.integers(len(points))))
        with torch.no_grad():
            posterior = self._model.posterior(torch.from_numpy(points))
            mean = posterior.mean.squeeze(-1).numpy()
            std = posterior.variance.squeeze(-1).clamp_min(0.0).sqrt().numpy()
        row = self.argmax(mean + std)
        return Choice(row, mean.item(row), std.item(row), mean.item(row) + std.item(row))

    def learn(self, point: FloatArray, reward: float, choice: Choice | None) -> None:  # noqa: ARG002 (nothing is kept)
        self._points.append(point)
        self._rewards.append(reward)
        count = len(self._rewards)
        if count < 2:
            return
        with warnings.catch_warnings():
            # It warns of a standard deviation of few rewards and of optimisers that stop early, and goes on.
            warnings.simplefilter("ignore")
            self._model = self._build()
            if count in EARLY_FITS or count % REFIT_EVERY == 0:
                botorch.fit.fit_gpytorch_mll(ExactMarginalLogLikelihood(self._model.likelihood, self._model))
                # what the transforms have seen belongs to the data, not to the hyper-parameters
                self._state = {
                    name: value for name, value in self._model.state_dict().items() if "transform" not in name
                }

    def _build(self) -> botorch.models.SingleTaskGP:
        points = torch.from_numpy(np.array(self._points))
        rewards = torch.tensor(self._rewards, dtype=torch.float64)[:, None]
        model = botorch.models.SingleTaskGP(
            points,
            rewards,
            outcome_transform=Standardize(1),
            input_transform=Normalize(points.shape[1]),
        )
        if self._state is not None:
            model.load_state_dict(self._state, strict=False)
        model.eval()
        return model
