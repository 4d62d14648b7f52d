"""A log larger than memory, looked at part by part: Parquet files and Dask DataFrames, here or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError
from kernel_bandits.logs.log import Log
from kernel_bandits.logs.partitions import FramePart, ParquetPart, frame_parts, parquet_parts
from kernel_bandits.logs.reading import Roles, as_log
from kernel_bandits.tables.arms import Arms
from kernel_bandits.tables.features import Features

T = TypeVar("T")
Part = ParquetPart | FramePart


@dataclass(frozen=True, eq=False)
class LogParts:
    """A log in parts, for :func:`~kernel_bandits.offpolicy.evaluate` and :func:`~kernel_bandits.offpolicy.verdict`.

    Attributes:
        parts: the row groups of files, or the partitions of a frame.
        roles: of the columns, the same in all parts.
        counts: how many rows each part has.
        rewards: of all rounds, shape (n,).
        names: of the actions.
        catalogue: the actions.
        features: of a table; None for numbers.
        without_contexts: whether nothing is known of a round before its action is chosen.
        client: on whose workers parts are looked at; None for this process.
    """

    parts: Sequence[Any]
    roles: Roles
    counts: NDArray[np.intp]
    rewards: FloatArray
    names: tuple[Any, ...]
    catalogue: Any
    features: Features | None
    without_contexts: bool
    client: Any = field(default=None, repr=False)
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.rewards)

    def rows(self, chosen: slice | NDArray[Any]) -> Log:
        """Return some rows as a log in memory."""
        wanted, ends = np.arange(len(self))[chosen], np.cumsum(self.counts)
        starts = ends - self.counts
        own = [wanted[(wanted >= start) & (wanted < end)] - start for start, end in zip(starts, ends, strict=True)]
        found = self._apply(_some_rows, own)
        return Log.joined([part for part in found if part is not None])

    def each(self, function: Callable[..., T], *along: Any) -> list[T]:
        """Return a function of every part and of what has a part for each of its rows, in order."""
        ends = np.cumsum(self.counts)
        slices = [slice(int(start), int(end)) for start, end in zip(ends - self.counts, ends, strict=True)]
        pieces = [(function, [None if one is None else one.rows(rows) for one in along]) for rows in slices]
        return list(self._apply(_of_part, pieces))

    def _apply(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Iterator[Any]:
        return applied(self.client, function, self.parts, self.roles, arguments)


def applied(
    client: Any, function: Callable[..., Any], parts: Sequence[Any], roles: Roles, arguments: Sequence[Any]
) -> Iterator[Any]:
    """Yield a function of each part, here or on the workers of a Dask client, in the order of the parts."""
    pairs = zip(parts, arguments, strict=True)
    if client is None:
        return (function(part, roles, one) for part, one in pairs)
    futures = [client.submit(function, part, roles, one, pure=False) for part, one in pairs]
    return (future.result() for future in futures)


def _log(part: Part, roles: Roles) -> Log:
    """Return a part as a log; an error in it names the part."""
    try:
        found = as_log(part.columns(), roles)
    except InputError as reason:
        raise InputError(f"{part.name}: {reason}") from reason
    if not isinstance(found, Log):
        raise InputError("source: expected actions from a catalogue, got densities; read the log as a whole.")
    return found


def _first_look(part: Part, roles: Roles, _: None) -> tuple[tuple[Any, ...], FloatArray, Features | None, bool]:
    found = _log(part, roles)
    return found.names, found.rewards, found.features, found.without_contexts


def _some_rows(part: Part, roles: Roles, rows: NDArray[np.intp]) -> Log | None:
    return _log(part, roles).rows(rows) if len(rows) else None


def _of_part(part: Part, roles: Roles, task: tuple[Callable[..., T], list[Any]]) -> T:
    function, pieces = task
    return function(_log(part, roles), *pieces)


def scan(
    source: Any,
    *,
    client: Any = None,
    context: Sequence[str] | None = None,
    action: str | None = None,
    reward: str | None = None,
    propensity: str | None = None,
    actions: Any = None,
    features: Features | None = None,
) -> LogParts:
    """Return a log that is read part by part whenever it is looked at: memory is bounded by a part.

    Each look reads one row group of a file at a time, or lets the workers of a Dask client look at the partitions that
    they have. Actions, rewards and the description of a table are gathered in a first pass. The arguments are those of
    :func:`read`; without ``features`` a table is described from its first part.

    Args:
        source: the path of a Parquet file or of a folder of them, or a Dask DataFrame.
        client: a Dask client; needed for a Dask DataFrame.
        context: the columns of the context.
        action: the column of the action.
        reward: the column of the reward.
        propensity: the column of the propensity.
        actions: features of the actions, or the arms of a table.
        features: what the columns of a table are.
    """
    parts: Sequence[Any]
    parts = parquet_parts(source)[0] if isinstance(source, (str, Path)) else frame_parts(source, client)
    roles = Roles(context, action, reward, propensity, actions, features)
    looks = list(applied(client, _first_look, parts, roles, [None] * len(parts)))
    other = next((place for place, look in enumerate(looks) if (look[2] is None) != (looks[0][2] is None)), None)
    if other is not None:
        raise InputError(
            f"source: part {other} (from 0) has text, dates or gaps in the context where part 0 has not, or the other "
            "way round; give features=."
        )
    names = tuple(dict.fromkeys(name for look in looks for name in look[0]))
    if all(type(name) is int for name in names):
        names = tuple(range(max(names) + 1))
    elif features is None and actions is None:
        names = tuple(sorted(names, key=str))
    described = looks[0][2]
    if described is not None and features is None:
        arms = described.actions
        described = Features(
            described.context, Arms(names) if isinstance(arms, Arms) and arms.columns is None else arms
        )
    roles = replace(roles, features=described, names=names)
    first = _log(parts[0], roles) if client is None else client.submit(_log, parts[0], roles, pure=False).result()
    rewards = [look[1] for look in looks]
    return LogParts(
        parts,
        roles,
        np.array([len(one) for one in rewards]),
        np.concatenate(rewards),
        first.names,
        first.catalogue,
        first.features,
        first.without_contexts,
        client,
    )
