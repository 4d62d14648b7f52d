"""Kernelised contextual bandits that stay fast.

The map, in the order in which data flows through a round:

- :mod:`~kernel_bandits.environments` offer a context and :mod:`~kernel_bandits.actions` (``Environment``),
- :mod:`~kernel_bandits.actions` pairs them into points, :mod:`~kernel_bandits.kernels` compares points (``Kernel``),
- :mod:`~kernel_bandits.features` makes such arrays of the rows of a table (``Features``), for those who have one,
- :mod:`~kernel_bandits.posteriors` predict mean and standard deviation (``Posterior``), carried by
- :mod:`~kernel_bandits.dictionaries` of past points (``Dictionary``),
- :mod:`~kernel_bandits.confidence` says how far above the mean the bound lies, :mod:`~kernel_bandits.theory` why,
- :mod:`~kernel_bandits.policies` choose (``Policy``): ``ek_ucb``, ``k_ucb`` and the other presets,
- :mod:`~kernel_bandits.experiments` run them and keep the record (``RunResult``),
- :mod:`~kernel_bandits.integrations` take them to scikit-learn, Gymnasium, coba and river.

Four verbs: ``predict``, ``update``, ``select``, ``run``. Importing this package needs NumPy and SciPy only.
"""

from kernel_bandits import dictionaries, environments, posteriors, theory
from kernel_bandits.actions import Box
from kernel_bandits.confidence import (
    ChowdhuryGopalan,
    Confidence,
    ConstantRadius,
    KrauseOng,
    Lemma31,
    Lemma41,
    StandardDeviations,
    Tightened,
)
from kernel_bandits.errors import InputError, KernelBanditsError, MissingPackageError, UnavailableError
from kernel_bandits.experiments.loop import run
from kernel_bandits.experiments.records import RunResult
from kernel_bandits.features import (
    Arms,
    Boolean,
    Categorical,
    Cyclic,
    Date,
    Embedding,
    Features,
    Numeric,
    Ordered,
)
from kernel_bandits.kernels import (
    Constant,
    Exponential,
    Gaussian,
    Kernel,
    Linear,
    Matern,
    Polynomial,
    TensorProduct,
    median_lengthscale,
    register_with_scikit_learn,
)
from kernel_bandits.persistence import load, register
from kernel_bandits.policies import (
    Decision,
    Policy,
    cbbkb,
    cbkb,
    cgp_ucb,
    ek_ucb,
    k_ucb,
    lin_ucb,
    random_features_ucb,
    sup_kernel_ucb,
    thompson_sampling,
    uniform,
)
from kernel_bandits.policies.table import TablePolicy
from kernel_bandits.policies.table_records import NamedDecision
from kernel_bandits.posteriors import KernelLearning, Prediction

__version__ = "0.1.0"

__all__ = [
    "Arms",
    "Boolean",
    "Box",
    "Categorical",
    "ChowdhuryGopalan",
    "Confidence",
    "Constant",
    "ConstantRadius",
    "Cyclic",
    "Date",
    "Decision",
    "Embedding",
    "Exponential",
    "Features",
    "Gaussian",
    "InputError",
    "Kernel",
    "KernelBanditsError",
    "KernelLearning",
    "KrauseOng",
    "Lemma31",
    "Lemma41",
    "Linear",
    "Matern",
    "MissingPackageError",
    "NamedDecision",
    "Numeric",
    "Ordered",
    "Policy",
    "Polynomial",
    "Prediction",
    "RunResult",
    "StandardDeviations",
    "TablePolicy",
    "TensorProduct",
    "Tightened",
    "UnavailableError",
    "__version__",
    "cbbkb",
    "cbkb",
    "cgp_ucb",
    "dictionaries",
    "ek_ucb",
    "environments",
    "k_ucb",
    "lin_ucb",
    "load",
    "median_lengthscale",
    "posteriors",
    "random_features_ucb",
    "register",
    "register_with_scikit_learn",
    "run",
    "sup_kernel_ucb",
    "theory",
    "thompson_sampling",
    "uniform",
]
