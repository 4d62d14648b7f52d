"""The estimators against obp's on random logs: the largest difference, which is rounding.

obp 0.4.1 is the last release that installs on a current Python; its estimators take arrays. It imports PyTorch for
another class, which a stub replaces. The continuous estimators are of release 0.5, read from its source package:

    python -m venv obp && obp/bin/pip install --no-deps obp==0.4.1
    obp/bin/pip install numpy scipy scikit-learn pandas tqdm
    pip download --no-deps --ignore-requires-python obp==0.5.5
    PYTHONPATH=src obp/bin/python benchmarks/peers/obp_estimators.py obp-0.5.5/obp/ope/estimators_continuous.py
"""

import importlib.util
import sys
import types
from pathlib import Path

import numpy as np

from kernel_bandits import offpolicy
from kernel_bandits.offpolicy import Rounds

LOGS = 200


def module_of(path):
    """Load a file of obp's ``ope`` folder without the package around it, which needs PyTorch."""
    for name in ("torch", "torch.nn", "torch.optim"):
        sys.modules.setdefault(name, types.ModuleType(name))
    sys.modules["torch"].Tensor = sys.modules["torch"].tensor = type("Tensor", (), {})
    for name, folder in (("obp", path.parents[1]), ("obp.ope", path.parent)):
        package = types.ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package
    sys.modules.pop("obp.utils", None)
    spec = importlib.util.spec_from_file_location(f"obp.ope.{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def discrete(estimators):
    """Return the largest difference of each estimator over random logs."""
    worst = {}
    for seed in range(LOGS):
        generator = np.random.default_rng(seed)
        count, actions = int(generator.integers(50, 500)), int(generator.integers(2, 20))
        behaviour, target = (generator.dirichlet(np.ones(actions), size=count) for _ in range(2))
        played = np.array([generator.choice(actions, p=row) for row in behaviour])
        each = np.arange(count)
        rewards, model = generator.normal(size=count), generator.normal(size=(count, actions))
        propensities = behaviour[each, played]
        shrinkage, threshold = float(generator.exponential(10.0)), float(generator.exponential(5.0))
        direct = (target * model).sum(axis=1)
        rounds = Rounds(target[each, played] / propensities, rewards, model[each, played], direct)
        log = {
            "reward": rewards,
            "action": played,
            "pscore": propensities,
            "action_dist": target[:, :, None],
            "position": np.zeros(count, dtype=int),
            "estimated_rewards_by_reg_model": model[:, :, None],
        }
        theirs = {
            "IPS": estimators.InverseProbabilityWeighting(),
            "SNIPS": estimators.SelfNormalizedInverseProbabilityWeighting(),
            "DM": estimators.DirectMethod(),
            "DR": estimators.DoublyRobust(),
            "DRos": estimators.DoublyRobustWithShrinkage(lambda_=shrinkage),
            "switch-DR": estimators.SwitchDoublyRobust(tau=threshold),
        }
        ours = {
            "IPS": offpolicy.inverse_propensity(rounds),
            "SNIPS": offpolicy.self_normalised(rounds),
            "DM": offpolicy.direct_method(rounds),
            "DR": offpolicy.doubly_robust(rounds),
            "DRos": offpolicy.shrunk_doubly_robust(rounds, shrinkage),
            "switch-DR": offpolicy.switch_doubly_robust(rounds, threshold),
        }
        for name, estimator in theirs.items():
            difference = abs(estimator.estimate_policy_value(**log) - ours[name].mean())
            worst[name] = max(worst.get(name, 0.0), float(difference))
    return worst


def continuous(module):
    """Return the same for the continuous estimators."""
    worst = {}
    for seed in range(LOGS):
        generator = np.random.default_rng(seed)
        count, bandwidth = int(generator.integers(50, 500)), float(generator.uniform(0.1, 1.0))
        played, wanted = generator.normal(size=count), generator.normal(size=count)
        rewards, model, densities = generator.normal(size=count), generator.normal(size=count), generator.random(count)
        densities += 0.1
        weights = offpolicy.smoothed_weights(played[:, None], wanted[:, None], densities, np.array([bandwidth]))
        # obp predicts at the candidate's action in both places
        rounds = Rounds(weights, rewards, model, model)
        log = {
            "reward": rewards,
            "action_by_behavior_policy": played,
            "action_by_evaluation_policy": wanted,
            "pscore": densities,
            "estimated_rewards_by_reg_model": model,
        }
        pairs = {
            "kernel IPS": ("KernelizedInverseProbabilityWeighting", offpolicy.inverse_propensity),
            "kernel SNIPS": ("KernelizedSelfNormalizedInverseProbabilityWeighting", offpolicy.self_normalised),
            "kernel DR": ("KernelizedDoublyRobust", offpolicy.doubly_robust),
        }
        for name, (theirs, ours) in pairs.items():
            value = getattr(module, theirs)(kernel="epanechnikov", bandwidth=bandwidth).estimate_policy_value(**log)
            worst[name] = max(worst.get(name, 0.0), abs(float(value) - float(ours(rounds).mean())))
    return worst


if __name__ == "__main__":
    installed = Path(importlib.util.find_spec("obp").submodule_search_locations[0])
    worst = discrete(module_of(installed / "ope" / "estimators.py"))
    if len(sys.argv) > 1:
        worst |= continuous(module_of(Path(sys.argv[1])))
    for name, difference in worst.items():
        print(f"{name:13} {difference:.1e}")
