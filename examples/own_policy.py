"""Your own policy in a study: ε-greedy. Run it with `kernel-bandits sweep examples/own_policy.py`."""

import numpy as np

import kernel_bandits as kb
from kernel_bandits.policy import Choice, Policy


class EpsilonGreedy(Policy):
    """The largest mean of K-UCB's posterior, or with probability ε any action."""

    def __init__(self, kernel: kb.Kernel, seed: int, epsilon: float) -> None:
        super().__init__(kb.posterior.ExactPosterior(kernel, 0.01), np.random.default_rng(seed))
        self.epsilon = epsilon

    def choose(self, points: np.ndarray) -> Choice:
        prediction = self.posterior.predict(points)
        best = self.argmax(prediction.mean)
        row = int(self.generator.integers(len(points))) if self.generator.random() < self.epsilon else best
        propensity = self.epsilon / len(points) + (1 - self.epsilon) * (row == best)
        return Choice(row, prediction.mean[row], prediction.std[row], prediction.mean[row], propensity)


greedy = {"name": EpsilonGreedy, "label": "ε = {epsilon}", "grid": {"epsilon": [0.0, 0.1]}}
policies = [greedy, {"name": "k_ucb", "options": {"regularization": 0.01}}]
study = {"environments": [{"name": "Chessboard"}], "policies": policies, "seeds": 5, "horizon": 200}
