"""A policy of one's own in a study: ε-greedy. Run it by `kernel-bandits sweep examples/own_policy.py`."""

import numpy as np

import kernel_bandits as kb
from kernel_bandits.policies import PosteriorPolicy


class EpsilonGreedy(PosteriorPolicy):
    """The largest mean of K-UCB's posterior, or with probability ε any action."""

    def __init__(self, kernel: kb.Kernel, seed: int, epsilon: float) -> None:
        super().__init__(kb.posteriors.ExactPosterior(kernel, 0.01), np.random.default_rng(seed))
        self.epsilon = epsilon

    def _select(self, points: np.ndarray):
        prediction = self.posterior.predict(points)
        best = self._argmax(prediction.mean)
        row = int(self._ties.integers(len(points))) if self._ties.random() < self.epsilon else best
        propensity = self.epsilon / len(points) + (1 - self.epsilon) * (row == best)
        return row, prediction.mean[row], prediction.std[row], prediction.mean[row], propensity

    def _select_many(self, points: np.ndarray):
        return [self._select(offered) for offered in points]


greedy = {"name": EpsilonGreedy, "label": "ε = {epsilon}", "grid": {"epsilon": [0.0, 0.1]}}
policies = [greedy, {"name": "k_ucb", "options": {"regularization": 0.01}}]
study = {"environments": [{"name": "Chessboard"}], "policies": policies, "seeds": 5, "horizon": 200}
