"""Kernelised contextual bandits that stay fast as the history grows.

The packages, in the order in which data flows through a round:

- :mod:`~kernel_bandits.environments` offer a context and a set of actions (``Environment``).
- :mod:`~kernel_bandits.actions` pairs each action with the context to a joint point; boxes and masks.
- :mod:`~kernel_bandits.kernels` compare points (``Kernel``).
- :mod:`~kernel_bandits.posterior` predict the mean and standard deviation of the reward (``Posterior``).
- :mod:`~kernel_bandits.dictionaries` choose the past points that a posterior keeps as anchors (``Dictionary``).
- :mod:`~kernel_bandits.confidence` sets the radius of the upper bound; :mod:`~kernel_bandits.theory` computes bounds.
- :mod:`~kernel_bandits.policy` choose an action (``Policy``).
- :mod:`~kernel_bandits.tables` encode rows as joint points, for a policy over a table (``Features``).
- :mod:`~kernel_bandits.presets` assemble all that: ``ek_ucb``, ``k_ucb`` and the other algorithms by name.
- :mod:`~kernel_bandits.logs` read and learn logs; :mod:`~kernel_bandits.offpolicy` estimates values from them
  and says whether to switch (``verdict``).
- :mod:`~kernel_bandits.loop` runs a policy in an environment and records every round (``RunResult``).
- :mod:`~kernel_bandits.integrations` adapt policies and environments to scikit-learn, Gymnasium, coba and river.

The verbs are ``predict``, ``update``, ``select`` and ``run``. Names are loaded on first use, and need only NumPy and
SciPy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kernel_bandits.version import __version__

if TYPE_CHECKING:
    from kernel_bandits import dictionaries, environments, logs, offpolicy, posterior, theory
    from kernel_bandits import plots as plots
    from kernel_bandits.actions import Box, Choice, LinearLimit, Range
    from kernel_bandits.boxes.constraints import Above, Below
    from kernel_bandits.confidence import (
        ChowdhuryGopalan,
        Confidence,
        ConstantRadius,
        KrauseOng,
        LearnedDeviations,
        Lemma31,
        Lemma41,
        StageRadius,
        StandardDeviations,
        Tightened,
    )
    from kernel_bandits.dictionaries import DictionaryRule, Fixed, Kors, PosteriorVariance, Resampling
    from kernel_bandits.drift import Discount, Restart, Wander, Window
    from kernel_bandits.errors import InputError, KernelBanditsError, MissingPackageError, UnavailableError
    from kernel_bandits.kernels import (
        Constant,
        Exponential,
        Gaussian,
        Kernel,
        Linear,
        Matern,
        Mixed,
        PerArm,
        Polynomial,
        TensorProduct,
        median_lengthscale,
        register_with_scikit_learn,
    )
    from kernel_bandits.learning import KernelLearning
    from kernel_bandits.learning.noise import UnequalNoise
    from kernel_bandits.loop import RunResult, run
    from kernel_bandits.offpolicy import learn_from
    from kernel_bandits.offpolicy.verdict import verdict
    from kernel_bandits.persistence import register
    from kernel_bandits.policy import Decision, Policy, load
    from kernel_bandits.posterior import Prediction
    from kernel_bandits.presets import (
        cbbkb,
        cbkb,
        cgp_ucb,
        ek_ucb,
        family_ucb,
        inverse_gap_weighting,
        k_ucb,
        lin_ucb,
        random_features_ucb,
        sup_kernel_ucb,
        thompson_sampling,
        uniform,
    )
    from kernel_bandits.tables import (
        Arms,
        Boolean,
        Categorical,
        Cyclic,
        Date,
        Embedding,
        Features,
        NamedDecision,
        Numeric,
        Ordered,
        TablePolicy,
    )

__all__ = [
    "Above",
    "Arms",
    "Below",
    "Boolean",
    "Box",
    "Categorical",
    "Choice",
    "ChowdhuryGopalan",
    "Confidence",
    "Constant",
    "ConstantRadius",
    "Cyclic",
    "Date",
    "Decision",
    "DictionaryRule",
    "Discount",
    "Embedding",
    "Exponential",
    "Features",
    "Fixed",
    "Gaussian",
    "InputError",
    "Kernel",
    "KernelBanditsError",
    "KernelLearning",
    "Kors",
    "KrauseOng",
    "LearnedDeviations",
    "Lemma31",
    "Lemma41",
    "Linear",
    "LinearLimit",
    "Matern",
    "MissingPackageError",
    "Mixed",
    "NamedDecision",
    "Numeric",
    "Ordered",
    "PerArm",
    "Policy",
    "Polynomial",
    "PosteriorVariance",
    "Prediction",
    "Range",
    "Resampling",
    "Restart",
    "RunResult",
    "StageRadius",
    "StandardDeviations",
    "TablePolicy",
    "TensorProduct",
    "Tightened",
    "UnavailableError",
    "UnequalNoise",
    "Wander",
    "Window",
    "__version__",
    "cbbkb",
    "cbkb",
    "cgp_ucb",
    "dictionaries",
    "ek_ucb",
    "environments",
    "family_ucb",
    "inverse_gap_weighting",
    "k_ucb",
    "learn_from",
    "lin_ucb",
    "load",
    "logs",
    "median_lengthscale",
    "offpolicy",
    "posterior",
    "random_features_ucb",
    "register",
    "register_with_scikit_learn",
    "run",
    "sup_kernel_ucb",
    "theory",
    "thompson_sampling",
    "uniform",
    "verdict",
]
# Where they are defined; what has no names here is a name itself.
_HOMES = {
    "actions": ("Box", "Choice", "LinearLimit", "Range"),
    "boxes.constraints": ("Above", "Below"),
    "confidence": (
        "ChowdhuryGopalan",
        "Confidence",
        "ConstantRadius",
        "KrauseOng",
        "LearnedDeviations",
        "Lemma31",
        "Lemma41",
        "StageRadius",
        "StandardDeviations",
        "Tightened",
    ),
    "dictionaries": ("DictionaryRule", "Fixed", "Kors", "PosteriorVariance", "Resampling"),
    "drift": ("Discount", "Restart", "Wander", "Window"),
    "errors": ("InputError", "KernelBanditsError", "MissingPackageError", "UnavailableError"),
    "kernels": (
        "Constant",
        "Exponential",
        "Gaussian",
        "Kernel",
        "Linear",
        "Matern",
        "Mixed",
        "PerArm",
        "Polynomial",
        "TensorProduct",
        "median_lengthscale",
        "register_with_scikit_learn",
    ),
    "learning": ("KernelLearning",),
    "learning.noise": ("UnequalNoise",),
    "loop": ("RunResult", "run"),
    "offpolicy": ("learn_from",),
    "offpolicy.verdict": ("verdict",),
    "persistence": ("register",),
    "policy": ("Decision", "Policy", "load"),
    "posterior": ("Prediction",),
    "presets": (
        "cbbkb",
        "cbkb",
        "cgp_ucb",
        "ek_ucb",
        "family_ucb",
        "inverse_gap_weighting",
        "k_ucb",
        "lin_ucb",
        "random_features_ucb",
        "sup_kernel_ucb",
        "thompson_sampling",
        "uniform",
    ),
    "tables": (
        "Arms",
        "Boolean",
        "Categorical",
        "Cyclic",
        "Date",
        "Embedding",
        "Features",
        "NamedDecision",
        "Numeric",
        "Ordered",
        "TablePolicy",
    ),
    "environments": (),
    "logs": (),
    "plots": (),
    "theory": (),
}


if not TYPE_CHECKING:  # so that a checker knows every name, and no other

    def __getattr__(name: str) -> Any:
        home = next((home for home, names in _HOMES.items() if name in names), None)
        if home is not None:
            globals()[name] = found = getattr(import_module(f"{__name__}.{home}"), name)
            return found
        if any(home.partition(".")[0] == name for home in _HOMES):
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
