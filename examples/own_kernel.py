"""Your own kernel in a study: periodic rewards. Run it with `kernel-bandits sweep examples/own_kernel.py`."""

import numpy as np

import kernel_bandits as kb


class Periodic(kb.Kernel):
    """exp(−2·sin²(π(x − y)/period)), multiplied over the columns."""

    def __init__(self, period: float = 1.0) -> None:
        self.period = period

    def __call__(self, X: np.ndarray, Y: np.ndarray | None = None) -> np.ndarray:
        offsets = X[:, None, :] - (X if Y is None else Y)[None, :, :]
        return np.exp(-2.0 * (np.sin(np.pi * offsets / self.period) ** 2).sum(axis=2))

    def diag(self, X: np.ndarray) -> np.ndarray:
        return np.ones(len(X))


periodic = {"name": Periodic, "period": 2.0}
study = {
    "environments": [{"name": "StepDiagonal"}],
    "policies": [{"name": "ek_ucb"}, {"name": "ek_ucb", "label": "periodic", "options": {"kernel": periodic}}],
    "seeds": 5,
    "horizon": 200,
}
