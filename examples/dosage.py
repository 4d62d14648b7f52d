"""The figure of docs/tutorial-dosage.md: dosing patients of scikit-learn's diabetes data, learned from outcomes alone.

Run: python examples/dosage.py [FIGURE], about five minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression

import kernel_bandits as kb
from kernel_bandits.arrays import FloatArray

HORIZON, SEEDS, WINDOW = 800, range(5), 50
TRAINING = 300
GRID = np.linspace(0, 1, 201)[:, None]
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#555555"


class Dosage(kb.environments.ContinuousEnvironment):
    """A dose between 0 and 1 for a patient; the outcome falls with the distance from the right one.

    Args:
        patients: features, one row each, shape (n, d_x).
        right_doses: shape (n,).
    """

    def __init__(self, patients: FloatArray, right_doses: FloatArray) -> None:
        self.patients = patients
        self._right = {patient.tobytes(): dose for patient, dose in zip(patients, right_doses, strict=True)}

    def next_round(self, contexts: np.random.Generator) -> kb.environments.Round:
        return kb.environments.Round(self.patients[contexts.integers(len(self.patients))], kb.Box(0.0, 1.0))

    def best_action(self, context: FloatArray) -> FloatArray:
        return np.array([self._right[context.tobytes()]])

    def expected_rewards(self, context: FloatArray, actions: FloatArray) -> FloatArray:
        return 1.0 - 2.0 * np.abs(actions[:, 0] - self.best_action(context))


def load() -> tuple[FloatArray, FloatArray, list[str]]:
    """Patients with features of unit variance, the dose that is right for each, and the names of the features."""
    data = load_diabetes()
    severity = data.target
    return data.data / data.data.std(axis=0), (severity - severity.min()) / np.ptp(severity), data.feature_names


def policies(patients: FloatArray) -> dict[str, tuple[str, Callable[[int], kb.Policy]]]:
    columns = patients.shape[1]
    lengthscales = [2.0 * float(kb.median_lengthscale(patients))] * columns + [0.5]
    smooth, quadratic = kb.Gaussian(lengthscales), kb.Polynomial(2, [3.0] * columns + [0.5])
    return {
        "EK-UCB": (BLUE, lambda seed: kb.ek_ucb(smooth, regularization=0.05, seed=seed)),
        "linear in all products": (GREEN, lambda seed: kb.ek_ucb(quadratic, regularization=0.05, seed=seed)),
        "LinUCB": (ORANGE, lambda seed: kb.lin_ucb(regularization=0.05, seed=seed)),
        "uniform": (GREY, lambda seed: kb.uniform(seed=seed)),
    }


def doses(policy: kb.policy.UpperConfidenceBound, patients: FloatArray) -> FloatArray:
    """The dose of the largest mean for each patient: what the policy would do if it had stopped exploring."""
    return np.array([GRID[policy.predict(patient, GRID).mean.argmax(), 0] for patient in patients])


def outcome(given: FloatArray, right: FloatArray) -> float:
    return float((1.0 - 2.0 * np.abs(given - right)).mean())


def play(environment: Dosage, build: Callable[[int], kb.Policy]) -> tuple[FloatArray, list[kb.Policy]]:
    """Outcomes by seed and round, shape (seeds, T), and the policies after that."""
    players = [build(seed) for seed in SEEDS]
    runs = [kb.run(player, environment, HORIZON, seed=seed) for seed, player in zip(SEEDS, players, strict=True)]
    return np.array([run.rewards for run in runs]), players


def draw_learning(axes, outcomes: dict[str, FloatArray], colours: dict[str, str], references: dict[str, float]) -> None:
    rounds = np.arange(WINDOW, HORIZON + 1)
    for label, rewards in outcomes.items():
        means = np.convolve(rewards.mean(axis=0), np.full(WINDOW, 1 / WINDOW), mode="valid")
        axes.plot(rounds, means, color=colours[label], linewidth=1.6, label=label)
    for label, value in references.items():
        axes.axhline(value, color="black", linewidth=0.8, linestyle=":")
        axes.annotate(label, (HORIZON, value), xytext=(0, 2), textcoords="offset points", ha="right", fontsize=7)
    axes.legend(frameon=False, fontsize=8, loc="center right", bbox_to_anchor=(1.0, 0.62), labelspacing=0.25)
    axes.set(xlabel="patient", ylabel=f"outcome, mean of {WINDOW}", xlim=(0, HORIZON))
    axes.set_title("Learning", loc="left", fontsize=10)


def draw_map(figure, axes, policy, patients: FloatArray, names: list[str]) -> None:
    """The dose by body mass index and s5, the other features at the patients' mean."""
    across, up = names.index("bmi"), names.index("s5")
    ticks = np.linspace(-2, 2.5, 40)
    grid = np.tile(patients.mean(axis=0), (len(ticks) ** 2, 1))
    grid[:, across], grid[:, up] = (coordinates.ravel() for coordinates in np.meshgrid(ticks, ticks))
    image = axes.pcolormesh(ticks, ticks, doses(policy, grid).reshape(40, 40), cmap="viridis", vmin=0, vmax=1)
    axes.plot(patients[:, across], patients[:, up], ".", color="white", markersize=2, alpha=0.5)
    axes.set(xlabel="body mass index (standardised)", ylabel="s5, log of triglycerides", xlim=(-2, 2.5), ylim=(-2, 2.5))
    axes.set_title("The policy: dose by two features", loc="left", fontsize=10)
    figure.colorbar(image, ax=axes, shrink=0.9, label="dose")


def draw_unseen(axes, given: dict[str, FloatArray], right: FloatArray) -> None:
    axes.plot([0, 1], [0, 1], color="black", linewidth=0.8, linestyle=":")
    for label, colour, marker in (("EK-UCB", BLUE, "o"), ("LinUCB", ORANGE, "x")):
        axes.plot(right, given[label], marker, color=colour, markersize=3, alpha=0.7, linestyle="", label=label)
    axes.legend(frameon=False, fontsize=8)
    axes.set(xlabel="right dose", ylabel="dose given", xlim=(0, 1), ylim=(-0.02, 1.02))
    axes.set_title(f"{len(right)} patients it has never seen", loc="left", fontsize=10)


def main() -> None:
    patients, right, names = load()
    order = np.random.default_rng(0).permutation(len(patients))
    seen, unseen = order[:TRAINING], order[TRAINING:]
    told = LinearRegression().fit(patients[seen], right[seen])
    references = {
        "the same dose for all, the best": max(outcome(dose, right[seen]) for dose in GRID[:, 0]),
        "regression on the right doses": outcome(told.predict(patients[seen]).clip(0, 1), right[seen]),
    }
    by_regression = told.predict(patients[unseen]).clip(0, 1)
    print({label: round(value, 3) for label, value in references.items()})
    print(f"regression on the right doses, unseen patients: {outcome(by_regression, right[unseen]):.3f}")
    environment = Dosage(patients[seen], right[seen])
    outcomes, given, first, colours = {}, {}, {}, {}
    for label, (colour, build) in policies(patients[seen]).items():
        outcomes[label], players = play(environment, build)
        first[label], colours[label] = players[0], colour
        early, late = outcomes[label][:, :100].mean(), outcomes[label][:, -200:].mean()
        print(f"{label}: first 100 patients {early:.3f}, last 200 {late:.3f}, m = {players[0].dictionary_size}")
        if label != "uniform":
            by_seed = [doses(player, patients[unseen]) for player in players]
            given[label] = by_seed[0]
            results = [outcome(dose, right[unseen]) for dose in by_seed]
            print(
                f"    unseen patients {np.mean(results):.3f}, from {min(results):.3f} to {max(results):.3f}", flush=True
            )
    figure = Figure(figsize=(12.0, 3.6), layout="constrained")
    left, middle, far = figure.subplots(1, 3)
    draw_learning(left, outcomes, colours, references)
    draw_map(figure, middle, first["EK-UCB"], patients[seen], names)
    draw_unseen(far, given, right[unseen])
    for axes in (left, far):
        axes.spines[["top", "right"]].set_visible(False)
    for axes in (left, middle, far):
        axes.tick_params(labelsize=8)
    figure.savefig(sys.argv[1] if sys.argv[1:] else "docs/figures/tutorial-dosage.png", dpi=120)


if __name__ == "__main__":
    main()
