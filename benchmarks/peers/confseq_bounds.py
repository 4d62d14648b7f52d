"""Our confidence sequences against confseq 0.0.11: the largest differences, and lengths beside its betting intervals.

confseq has wheels for Python 3.10 at the latest, and the library needs 3.11, so confseq writes numbers first and ours
are compared with them after. The file is also what ``tests/offpolicy/test_sequences.py`` asserts.

    python3.10 -m venv confseq && confseq/bin/pip install "numpy<2" scipy matplotlib pandas multiprocess
    confseq/bin/pip install --no-deps confseq==0.0.11
    confseq/bin/python benchmarks/peers/confseq_bounds.py write tests/offpolicy/confseq.json
    python benchmarks/peers/confseq_bounds.py compare tests/offpolicy/confseq.json
"""

import json
import sys
from math import log

import numpy as np

VARIANCES, FAILURES = (1.0, 5.0, 30.0, 300.0, 3e4, 3e6), (0.4, 0.025, 0.001)
ROUNDS, RATES = 3000, (0.02, 0.1, 0.5)
# ρ of our mixtures, where c is 1
MIXTURE = 16.0


def optimal_variance(failure, sided):
    """Return the v_opt for which confseq's mixture has our ρ: it takes ρ = v_opt/(2ℓ + log(1 + 2ℓ)), ℓ = log(1/α)."""
    size = 2.0 * log(1.0 / (failure if sided == 2 else 2.0 * failure))
    return MIXTURE * (size + np.log1p(size))


def clicks(rate):
    return (np.random.default_rng(0).random(ROUNDS) < rate).astype(float)


def write(path):
    from confseq.betting import betting_cs
    from confseq.boundaries import gamma_exponential_mixture_bound, normal_mixture_bound
    from confseq.conjmix_bounded import conjmix_empbern_lower_cs

    found = {"gamma": [], "normal": [], "means": [], "betting": []}
    for failure in FAILURES:
        for variance in VARIANCES:
            own = (variance, failure)
            bound = gamma_exponential_mixture_bound(variance, failure, optimal_variance(0.025, 1), 1.0, 0.025)
            found["gamma"].append((*own, float(bound)))
            bound = normal_mixture_bound(variance, failure, optimal_variance(0.05, 2), 0.05, is_one_sided=False)
            found["normal"].append((*own, float(bound)))
    for rate in RATES:
        values = clicks(rate)
        # it halves α itself; its first guess counts for the first round alone, ours for one round of the mean
        lower = conjmix_empbern_lower_cs(values, v_opt=optimal_variance(0.025, 1), alpha=0.05)
        upper = 1.0 - conjmix_empbern_lower_cs(1.0 - values, v_opt=optimal_variance(0.025, 1), alpha=0.05)
        found["means"].append((rate, lower[[9, 99, -1]].tolist(), upper[[9, 99, -1]].tolist()))
        low, high = betting_cs(values, alpha=0.05, running_intersection=False, breaks=2000)
        found["betting"].append((rate, float(low[-1]), float(high[-1])))
    with open(path, "w") as file:
        json.dump(found, file, indent=1)


def compare(path):
    from kernel_bandits.offpolicy import BoundedMean, SubGaussianMean
    from kernel_bandits.offpolicy.sequences import excess

    with open(path) as file:
        found = json.load(file)
    worst = max(abs(float(excess(v, failure)) / bound - 1.0) for v, failure, bound in found["gamma"])
    print(f"gamma-exponential mixture: relative difference at most {worst:.1e}")
    worst = 0.0
    for v, failure, bound in found["normal"]:
        if v >= 1.0:
            low, high = SubGaussianMean(1.0, 1.0 - failure).after(np.zeros(int(v))).interval
            worst = max(worst, abs(0.5 * (high - low) * v / bound - 1.0))
    print(f"normal mixture: relative difference at most {worst:.1e}")
    for (rate, lower, upper), (_, low, high) in zip(found["means"], found["betting"], strict=True):
        ends = BoundedMean().path(clicks(rate)).interval
        worst = max(
            np.abs(ends[0][[9, 99, -1]] - np.clip(lower, 0, 1)).max(),
            np.abs(ends[1][[9, 99, -1]] - np.clip(upper, 0, 1)).max(),
        )
        length = ends[1][-1] - ends[0][-1]
        print(f"mean {rate}: difference at most {worst:.1e}; length {length:.4f}, betting {high - low:.4f}")


if __name__ == "__main__":
    {"write": write, "compare": compare}[sys.argv[1]](sys.argv[2])
