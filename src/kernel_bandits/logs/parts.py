"""Logs larger than memory, part by part: Parquet files and Dask DataFrames, looked at or learned, here or elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import LARGEST_REWARD, FloatArray, as_count
from kernel_bandits.confidence import GuaranteedRadius
from kernel_bandits.errors import InputError, needs
from kernel_bandits.logs.log import Columns, Log, as_shares, columns_of, refuse
from kernel_bandits.logs.reading import Roles, as_log
from kernel_bandits.policy.policy import Policy
from kernel_bandits.posterior.basis import AnchorBasis
from kernel_bandits.posterior.nystrom import NystromPosterior
from kernel_bandits.posterior.sums import Sums, is_enough, sample_basis, sums_of
from kernel_bandits.tables.arms import Arms
from kernel_bandits.tables.features import Features
from kernel_bandits.values import fact

T = TypeVar("T")
# Rows that are learned at once.
BATCH_ROWS = 65_536


@dataclass(frozen=True)
class ParquetPart:
    """One row group of a Parquet file."""

    path: str
    group: int

    @property
    def name(self) -> str:
        """What an error calls it."""
        return f"{Path(self.path).name}, row group {self.group}"

    def __len__(self) -> int:
        from pyarrow import parquet

        with parquet.ParquetFile(self.path) as file:
            return int(file.metadata.row_group(self.group).num_rows)

    def columns(self) -> Columns:
        """Return all columns."""
        from pyarrow import parquet

        with parquet.ParquetFile(self.path) as file:
            return columns_of(file.read_row_group(self.group))

    def batches(self, names: list[str]) -> Iterator[FloatArray]:
        """Yield some columns as numbers (n, d), a batch at a time."""
        from pyarrow import parquet

        with parquet.ParquetFile(self.path) as file:
            for batch in file.iter_batches(BATCH_ROWS, row_groups=[self.group], columns=names):
                # gaps become NaN, which is refused
                columns = [batch.column(name).to_numpy(zero_copy_only=False) for name in names]
                yield np.stack(columns, axis=1, dtype=np.float64, casting="unsafe")


@dataclass(frozen=True)
class FramePart:
    """One partition of a DataFrame, as pandas holds it."""

    frame: Any
    number: int

    @property
    def name(self) -> str:
        """What an error calls it."""
        return f"partition {self.number}"

    def __len__(self) -> int:
        return len(self.frame)

    def columns(self) -> Columns:
        """Return all columns."""
        return columns_of(self.frame)

    def batches(self, names: list[str]) -> Iterator[FloatArray]:
        """Yield some columns as numbers (n, d), a batch at a time."""
        for start in range(0, len(self.frame), BATCH_ROWS):
            yield self.frame.iloc[start : start + BATCH_ROWS][names].to_numpy(dtype=np.float64)


Part: TypeAlias = ParquetPart | FramePart


def parts_of(source: Any, client: Any) -> tuple[Sequence[Any], list[str]]:
    """Return the row groups of Parquet files, or futures of the partitions of a Dask DataFrame, and the columns."""
    if isinstance(source, (str, Path)):
        with needs("pyarrow", "kernel-bandits[arrow]"):
            from pyarrow import dataset, parquet
        if not Path(source).exists():
            raise InputError(f"dataset: {source} does not exist.")
        found = dataset.dataset(source, format="parquet")
        parts = [
            ParquetPart(str(Path(file).resolve()), group)
            for file in sorted(found.files)
            for group in range(parquet.ParquetFile(file).metadata.num_row_groups)
        ]
        if not parts:
            raise InputError(f"dataset: {source} holds no rows.")
        return parts, list(found.schema.names)
    if not hasattr(source, "to_delayed"):
        raise InputError(f"dataset: expected a path or a Dask DataFrame, got {type(source).__name__}.")
    if client is None:
        raise InputError("client: expected the Dask client whose workers hold the DataFrame, got none.")
    delayed = client.compute(list(source.to_delayed()))
    futures = [client.submit(FramePart, part, number, pure=False) for number, part in enumerate(delayed)]
    return futures, list(source.columns)


def applied(
    client: Any, function: Callable[..., T], parts: Sequence[Any], *own: Sequence[Any], shared: Sequence[Any] = ()
) -> Iterator[T]:
    """Yield a function of each part, of what belongs to it, and of what all share, in the order of the parts.

    It runs here, or on the workers of a Dask client, where what a killed worker had in hand is computed again.
    """
    arguments = zip(parts, *own, strict=True)
    if client is None:
        yield from (function(*one, *shared) for one in arguments)
        return
    sent = [client.scatter(one, broadcast=True, hash=False) for one in shared]
    futures = [client.submit(function, *one, *sent, pure=False) for one in arguments]
    for place, future in enumerate(futures):
        yield future.result()
        # what was computed of a part is not kept once it is used
        futures[place] = None


@dataclass(frozen=True, eq=False)
class LogParts:
    """A log in parts, for :func:`~kernel_bandits.offpolicy.evaluate` and :func:`~kernel_bandits.offpolicy.verdict`.

    Attributes:
        parts: the row groups of files, or the partitions of a frame.
        roles: of the columns, the same in all parts.
        counts: how many rows each part has.
        rewards: of all rounds, shape (n,).
        first: the first part, without rows of its own, for what all parts have in common.
        client: on whose workers parts are looked at; None for this process.
    """

    parts: Sequence[Any]
    roles: Roles
    counts: NDArray[np.intp]
    rewards: FloatArray
    first: Log
    client: Any = field(default=None, repr=False)
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.rewards)

    # what all parts have in common, as a log in memory has it
    names: ClassVar[tuple[Any, ...]] = fact("first.names")
    actions: ClassVar[Any] = fact("first.actions")
    features: ClassVar[Features | None] = fact("first.features")
    without_contexts: ClassVar[bool] = fact("first.without_contexts")

    def rows(self, chosen: slice | NDArray[Any]) -> Log:
        """Return some rows as a log in memory."""
        wanted = np.arange(len(self))[chosen]
        own = [wanted[(wanted >= one.start) & (wanted < one.stop)] - one.start for one in self._slices()]
        found = applied(self.client, partial(_some_rows, self.roles), self.parts, own)
        return Log.joined([part for part in found if part is not None])

    def each(self, function: Callable[..., T], *along: Any) -> list[T]:
        """Return a function of every part and of what has a part for each of its rows, in order."""
        pieces = [[None if one is None else one.rows(rows) for one in along] for rows in self._slices()]
        return list(applied(self.client, partial(_of_part, self.roles, function), self.parts, pieces))

    def _slices(self) -> list[slice]:
        """Return which rows are those of each part."""
        ends = np.cumsum(self.counts).tolist()
        return [slice(end - count, end) for count, end in zip(self.counts.tolist(), ends, strict=True)]


def _log(roles: Roles, part: Part) -> Log:
    """Return a part as a log; an error in it names the part."""
    try:
        found = as_log(part.columns(), roles)
    except InputError as reason:
        raise InputError(f"{part.name}: {reason}") from reason
    if not isinstance(found, Log):
        raise InputError("source: expected actions from a catalogue, got densities; read the log as a whole.")
    # a part may lack an action
    object.__setattr__(found, "shares", roles.shares)
    return found


def _first_look(roles: Roles, part: Part) -> tuple[tuple[Any, ...], FloatArray, Features | None, FloatArray]:
    found = _log(roles, part)
    return found.names, found.rewards, found.features, found.fixed_propensities()


def _shares(names: Sequence[Any], looks: Sequence[tuple[Any, ...]]) -> FloatArray | None:
    """Return the shares of the actions in all parts; None if they vary."""
    total = np.zeros(len(names))
    for own_names, _, _, propensities in looks:
        own = np.zeros(len(names))
        own[[names.index(name) for name in own_names]] = propensities
        total[(total > 0.0) & (own > 0.0) & (np.abs(total - own) > 1e-9)] = np.nan
        total = np.where(total == 0.0, own, total)
    return as_shares(total)


def _some_rows(roles: Roles, part: Part, rows: NDArray[np.intp]) -> Log | None:
    return _log(roles, part).rows(rows) if len(rows) else None


def _of_part(roles: Roles, function: Callable[..., T], part: Part, pieces: Sequence[Any]) -> T:
    return function(_log(roles, part), *pieces)


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

    The source is the path of a Parquet file or of a folder of them, or a Dask DataFrame with the client of its workers.
    Each look reads one row group of a file at a time, or lets the workers look at the partitions that they have.
    Actions, rewards and the description of a table are gathered in a first pass. The other arguments are those of
    :func:`read`; without ``features`` a table is described from its first part.
    """
    parts, _ = parts_of(source, client)
    roles = Roles(context, action, reward, propensity, actions, features)
    looks = list(applied(client, partial(_first_look, roles), parts))
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
        has_names_alone = isinstance(arms, Arms) and arms.columns is None
        described = Features(described.context, Arms(names) if has_names_alone else arms)
    roles = replace(roles, features=described, names=names, shares=_shares(names, looks))
    (first,) = applied(client, partial(_some_rows, roles), parts[:1], [np.arange(1)])
    rewards = [look[1] for look in looks]
    counts = np.array([len(one) for one in rewards])
    return LogParts(parts, roles, counts, np.concatenate(rewards), first, client)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Learned:
    """What :func:`learn` did.

    Attributes:
        rows: the number of rounds learned.
        anchors: m.
        passes: how often the dataset was read, the sample not counted.
        unexplained: the mean of what the anchors leave of k(s, s).
    """

    rows: int
    anchors: int
    passes: int
    unexplained: float


def learn(
    policy: Policy,
    dataset: Any,
    *,
    context: Sequence[str] | None = None,
    action: Sequence[str] | None = None,
    reward: str = "reward",
    sample: int = 2_000,
    most_passes: int = 2,
    client: Any = None,
    seed: int = 0,
) -> Learned:
    """Learn a log in bounded memory; the policy then continues online.

    Anchors are chosen from a sample. One pass over the dataset then adds up Σφφᵀ and Σrφ, part by part, which is the
    posterior of ``update_many`` with these anchors. If they leave much unexplained, points that they explain least join
    the sample, and the pass is repeated. The sums are added in the order of the parts, so the result does not depend on
    the workers. A failed call leaves the policy as it was.

    Args:
        policy: a fresh one, with a kernel and a dictionary rule with ``history="none"``, such as
            ``ek_ucb(kernel, dictionary=Kors(history="none", max_size=500))``.
        dataset: the path of a Parquet file or of a folder of them, or a Dask DataFrame. All columns are numbers.
        context: the columns of the context; by default those named ``context_…``.
        action: the columns of the action; by default ``action_0``, ``action_1``, ….
        reward: the column of the reward.
        sample: how many rows to choose anchors from.
        most_passes: the largest number of passes.
        client: a Dask client on whose workers the parts are read; needed for a Dask DataFrame.
        seed: of the sample.
    """
    posterior = _fresh_posterior(policy)
    as_count("most_passes", most_passes)
    parts, names = parts_of(dataset, client)
    if context is None:
        context = [name for name in names if name.startswith("context_")]
    if action is None:
        action = [name for name in names if name.removeprefix("action_").isdigit()]
    columns = [*context, *action, reward]
    missing = [name for name in columns if name not in names]
    if missing or not action:
        wanted = missing[0] if missing else "action_0"
        raise InputError(f"dataset: expected a column {wanted!r}, got {', '.join(names)}; name the columns.")
    each = -(-as_count("sample", sample) // len(parts))
    candidates = np.concatenate(list(applied(client, _sampled, parts, shared=(columns, each, seed))))
    rows = sum(applied(client, len, parts))
    if not len(candidates):
        raise InputError("dataset: expected at least one row, got none.")
    passes = 0
    while True:
        basis = sample_basis(posterior, np.unique(candidates, axis=0), rows)
        sums = reduce(add, applied(client, part_sums, parts, shared=(basis, columns)))
        passes += 1
        if passes >= most_passes or is_enough(posterior, sums):
            break
        candidates = np.concatenate([candidates, sums.missed])
    policy.learn_sums(basis, sums, len(context))
    return Learned(sums.count, len(basis), passes, sums.residual_trace / sums.count)


def _fresh_posterior(policy: Policy) -> NystromPosterior:
    # a policy over a table has a posterior too, but encodes row by row
    posterior = policy.model if hasattr(policy, "learn_sums") else None
    if not isinstance(posterior, NystromPosterior) or posterior.history is not None:
        raise InputError(
            "policy: expected one over arrays with a kernel and a dictionary rule with history='none', since a log "
            "larger than memory cannot be kept; build ek_ucb(kernel, dictionary=Kors(history='none')). To learn the "
            "kernel, let another policy learn a sample first and take its posterior.kernel and "
            "posterior.regularization."
        )
    if policy.round_index or policy.pending:
        raise InputError("policy: expected one that has learned nothing yet.")
    if isinstance(getattr(policy, "confidence", None), GuaranteedRadius):
        raise InputError(
            "confidence: a radius with a guarantee does not hold for anchors chosen by points that came after "
            "rewards; learn the log with kernel_bandits.StandardDeviations(…)."
        )
    return posterior


def _points(part: Part, columns: list[str]) -> Iterator[FloatArray]:
    """Yield joint points and rewards (n, d + 1) of a part, or an error that names the row."""
    start = 0
    for table in part.batches(columns):
        sound = np.isfinite(table).all(axis=1) & (np.abs(table[:, -1]) <= LARGEST_REWARD)
        if not sound.all():
            row = int(np.flatnonzero(~sound)[0])
            raise refuse(f"{part.name}, values", start + row, "finite numbers", table[row].tolist())
        yield table
        start += len(table)


def part_sums(part: Part, basis: AnchorBasis, columns: list[str]) -> Sums:
    """Return the sums of a part; runs wherever the part is."""
    width = len(columns) - 1
    total = Sums(np.zeros((len(basis), len(basis))), np.zeros(len(basis)), 0.0, 0, np.empty((0, width)), np.empty(0))
    for table in _points(part, columns):
        total = total + sums_of(basis, np.ascontiguousarray(table[:, :-1]), np.ascontiguousarray(table[:, -1]))
    return total


def _sampled(part: Part, columns: list[str], count: int, seed: int) -> FloatArray:
    """Return at most ``count`` points of the first batch of a part, drawn at random."""
    table = next(_points(part, columns), np.empty((0, len(columns))))
    return table[np.sort(np.random.default_rng(seed).permutation(len(table))[:count]), :-1]
