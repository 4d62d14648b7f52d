"""Your own posterior: Bayesian linear regression on polynomial features, under the UCB rule of the library."""

import numpy as np

import kernel_bandits as kb
from kernel_bandits.policy import UpperConfidenceBound
from kernel_bandits.posterior import Evaluation, Posterior


def polynomial(points: np.ndarray, degree: int) -> np.ndarray:
    """Return the features (1, s, s², …) of joint points (n, d), and the products of each context and action column."""
    powers = [points**power for power in range(1, degree + 1)]
    products = (points[:, :, None] * points[:, None, :]).reshape(len(points), -1)
    return np.hstack([np.ones((len(points), 1)), *powers, products])


class PolynomialRegression(Posterior):
    """Ridge regression on polynomials; a value: `learned` returns the next one and changes nothing."""

    approximation = "exact"

    def __init__(self, degree: int, regularization: float) -> None:
        self.kernel, self.regularization, self.degree = kb.Polynomial(degree=degree), regularization, degree
        self.dimension, self.round_index = None, 0
        self.inverse, self.moment = np.empty((0, 0)), np.empty(0)

    def evaluate(self, points: np.ndarray) -> Evaluation:
        features = polynomial(points, self.degree)
        if not self.round_index:
            return Evaluation(np.zeros(len(points)), np.linalg.norm(features, axis=1))
        # mean = φᵀPb and std² = λ·φᵀPφ with P = (λI + ΣφφT)⁻¹ and b = Σrφ
        solved = features @ self.inverse
        return Evaluation(solved @ self.moment, np.sqrt(self.regularization * np.vecdot(solved, features)))

    def learned(self, points, rewards, weights=None, evaluated=None):
        features = polynomial(points, self.degree)
        weighted = features if weights is None else weights[:, None] * features
        after = PolynomialRegression(self.degree, self.regularization)
        after.dimension, after.round_index = points.shape[1], self.round_index + len(points)
        if self.round_index:
            precision, moment = np.linalg.inv(self.inverse), self.moment
        else:
            precision, moment = self.regularization * np.eye(features.shape[1]), np.zeros(features.shape[1])
        after.inverse = np.linalg.inv(precision + weighted.T @ features)
        after.moment = moment + weighted.T @ rewards
        return after


if __name__ == "__main__":
    posterior = PolynomialRegression(degree=6, regularization=0.01)
    policy = UpperConfidenceBound(posterior, kb.StandardDeviations(1.0), np.random.default_rng(0))
    print(kb.run(policy, kb.environments.Bump(), horizon=500, seed=0))
