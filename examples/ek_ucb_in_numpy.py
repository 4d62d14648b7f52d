"""EK-UCB in 60 lines of NumPy, with the decisions of `kb.ek_ucb`. Run it with `python examples/ek_ucb_in_numpy.py`.

The number 1.2 is the second line of the paper's Algorithm 1 (KORS), and 2.8 the eighth of its Algorithm 2 (EK-UCB), one
line per statement; docs/how-ek-ucb-runs.md has them all. The kernel has k(s, s) = 1, and μ = λ.
"""

import numpy as np

import kernel_bandits as kb


class EfficientKernelUCB:
    def __init__(self, kernel, regularization, columns, coins, ties, oversampling=2.0, accuracy=0.5):
        self.kernel, self.regularization, self.coins, self.ties = kernel, regularization, coins, ties
        self.oversampling, self.accuracy = oversampling, accuracy
        # 2.3, 2.4: 𝒮 = 𝒵 = ∅;  J = L⁻¹ with LLᵀ = K_ZZ;  P = (λI + Σφφᵀ)⁻¹;  w = PΣrφ;  Q = (μI + Σφφᵀ/p)⁻¹ over draws
        self.points, self.rewards, self.anchors = np.empty((0, columns)), np.empty(0), np.empty((0, columns))
        self.J, self.P, self.w, self.Q = np.empty((0, 0)), np.empty((0, 0)), np.empty(0), np.empty((0, 0))

    def coordinates(self, points):
        # φ(s) = J k_Z(s);  residual(s) = k(s, s) − ‖φ(s)‖²
        features = self.kernel(points, self.anchors) @ self.J.T
        return features, np.maximum(1.0 - (features**2).sum(axis=1), 0.0)

    def predict(self, points):
        features, residual = self.coordinates(points)
        # 2.10, 2.11: σ̃² = k/λ + k_Zᵀ(Λ − K_ZZ⁻¹/λ)k_Z = residual/λ + φᵀPφ
        variance = residual / self.regularization + ((features @ self.P) * features).sum(axis=1)
        # 2.9: μ̃ = k_ZᵀΛΓ = φᵀw;  std = √λ·σ̃
        return features @ self.w, np.sqrt(self.regularization * variance)

    def select(self, points):
        # 2.7, 2.8: a = argmax μ̃ + β̃σ̃ with β̃ = √λ;  2.2: at random where nothing is known, as among all that tie
        bounds = np.add(*self.predict(points))
        (best,) = np.nonzero(bounds >= bounds.max() - 1e-12 * abs(bounds.max()))
        return best[self.ties.integers(len(best))]

    def update(self, point, reward):
        (features,), (residual,) = self.coordinates(point[None])
        # 1.1: τ = (1 + ε)u/(u + μ) with u = k − k_Zᵀ(K_ZZ + μ·diag(p))⁻¹k_Z = residual + μ·φᵀQφ
        unexplained = residual + self.regularization * (features @ self.Q @ features)
        score = (1 + self.accuracy) * unexplained / (unexplained + self.regularization)
        # 1.2, 1.3: p = min(γτ, 1);  z ~ Bernoulli(p)
        probability = min(self.oversampling * score, 1.0)
        is_drawn = self.coins.random() < probability
        if is_drawn and residual > min(1e-6, 1e-3 * self.regularization):
            self.add_anchor(point, features, np.sqrt(residual))
            features = np.append(features, np.sqrt(residual))
        if is_drawn:
            # 1.3: Q ← (Q⁻¹ + φφᵀ/p)⁻¹ = Q − Qφ(Qφ)ᵀ/(p + φᵀQφ)
            self.Q -= np.outer(self.Q @ features, self.Q @ features) / (probability + features @ self.Q @ features)
        # 2.16, 2.17: P ← (P⁻¹ + φφᵀ)⁻¹ = P − hhᵀ/c;  w ← w + h(r − φᵀw)/c with h = Pφ and c = 1 + φᵀh
        solved, scale = self.P @ features, 1 + features @ self.P @ features
        self.P -= np.outer(solved, solved) / scale
        self.w += solved * (reward - features @ self.w) / scale
        # 2.13: 𝒮 ← 𝒮 ∪ {s}, Y ← [Y, r]
        self.points, self.rewards = np.vstack([self.points, point]), np.append(self.rewards, reward)

    def add_anchor(self, point, features, length):
        # 2.21: J ← [[J, 0], [−φ(z)ᵀJ/l, 1/l]] with l = √residual(z);  Q ← [[Q, 0], [0, 1/μ]]
        self.J = np.block([[self.J, 0 * features[:, None]], [-(features @ self.J)[None] / length, 1 / length]])
        self.Q = np.block([[self.Q, 0 * features[:, None]], [0 * features[None], 1 / self.regularization]])
        self.anchors = np.vstack([self.anchors, point])
        # c(s) = (k(s, z) − φ(s)ᵀφ(z))/l, the new last coordinate of the past;  a = Σφc
        past, new = np.split(self.coordinates(self.points)[0], [-1], axis=1)
        cross = past.T @ new
        # 2.20: P ← [[P + Pa(Pa)ᵀ/S, −Pa/S], [·, 1/S]] with S = λ + Σc² − aᵀPa
        solved, schur = self.P @ cross, self.regularization + new.T @ new - cross.T @ self.P @ cross
        self.P = np.block([[self.P + solved @ solved.T / schur, -solved / schur], [-solved.T / schur, 1 / schur]])
        # 2.22: w ← [w, 0] + (Σrc − aᵀw)·[−Pa, 1]/S, by the last column of P
        self.w = np.append(self.w, 0.0) + self.P[:, -1] * (self.rewards @ new - self.w @ cross)


def gaussian(lengthscale):
    # k(s, z) = exp(−‖s − z‖²/2ℓ²)
    return lambda left, right: np.exp(-((left[:, None] - right) ** 2).sum(axis=2) / (2 * lengthscale**2))


def play(environment, lengthscale, regularization, horizon, seed):
    """Play the library and this file side by side; yield both decisions and both numbers of anchors."""
    policy = kb.ek_ucb(kb.Gaussian(lengthscale), regularization=regularization, seed=seed)
    # the library draws ties from stream 2 of a seed and coins from stream 3
    ties, coins = (np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(key,))) for key in (2, 3))
    generator, plain = np.random.default_rng(seed), None
    for _ in range(horizon):
        context, actions = (offered := environment.next_round(generator)).context, offered.rows
        points = np.hstack([np.tile(context, (len(actions), 1)), actions])
        if plain is None:
            plain = EfficientKernelUCB(gaussian(lengthscale), regularization, points.shape[1], coins, ties)
        decision, row = policy.select(context, actions), plain.select(points)
        mean, std = plain.predict(points)
        reward = environment.expected_rewards(context, actions)[row] + environment.noise(generator)
        policy.update(context, decision.action, reward)
        plain.update(points[row], reward)
        yield decision, (row, mean[row], std[row]), (policy.dictionary_size, len(plain.anchors))


def main():
    for environment in (kb.environments.Chessboard(), kb.environments.StepDiagonal(), kb.environments.Bump()):
        rounds = list(play(environment, environment.lengthscale, 0.01, 500, seed=0))
        equal = sum(decision.index == row for decision, (row, _, _), _ in rounds)
        print(f"{environment.name}: {equal} of {len(rounds)} decisions equal, {rounds[-1][2][1]} anchors")


if __name__ == "__main__":
    main()
