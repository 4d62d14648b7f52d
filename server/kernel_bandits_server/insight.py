"""What a loop knows, as JSON for the page: numbers of its log, its model, and warnings in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.tables import Arms, Boolean, Categorical, Column, Embedding, Ordered, TablePolicy
from kernel_bandits.tables.values import as_plain, nearest
from kernel_bandits_server.events import Event
from kernel_bandits_server.replica import Replica
from kernel_bandits_server.tally import Tally
from kernel_bandits_server.trial import NO_VERDICT

STEPS, MOST_LINES = 15, 8
# Past visitors that a response is averaged over.
VISITORS = 40
DAY = 86_400.0
# Seconds by which clocks of machines may differ.
CLOCK = 60.0


def summary(replica: Replica) -> dict[str, Any]:
    """Return what the log of a loop says: rewards, arms, groups, open decisions, warnings."""
    tally, settings = replica.seen(), replica.settings
    oldest = next(iter(replica.open.values()), None)
    return {
        "loop": settings.name,
        "events": replica.applied,
        "time": replica.time,
        "pending": len(replica.open),
        "oldest_time": None if oldest is None else oldest.time,
        "maturity": _maturity(replica),
        "silence": {"after": settings.silence.after, "reward": settings.silence.reward},
        "exploration_floor": settings.exploration_floor,
        "apprentice": settings.apprentice,
        "policy": settings.policy,
        **tally.report(),
        "verdict": _verdict(replica, tally),
        "challenger": _challenger(replica, tally),
        "retired": [as_plain(name) for name in replica.retired],
        "columns": list(tally.segments.parts),
        "warnings": _warnings(replica, tally),
    }


def at(found: dict[str, Any], now: float) -> dict[str, Any]:
    """Return a summary as it is read at a time: the oldest decision waits longer while nothing happens."""
    since, ahead, warnings = found["oldest_time"], found["time"] - now, found["warnings"]
    if ahead > CLOCK:
        advice = "until that has passed, no decision counts as silent. Set the clocks of all machines."
        warnings = [*warnings, f"The log is {ahead:.0f} s ahead of this machine's clock: {advice}"]
    return {**found, "oldest_pending": None if since is None else max(0.0, now - since), "warnings": warnings}


def _maturity(replica: Replica) -> dict[str, Any]:
    """Return how many decisions the averages count: all before the first whose reward is not settled."""
    made, waiting = replica.tally.counts["decisions"], len(replica.line)
    words = f"The averages count {made - waiting} of {made} decisions"
    words += "." if not waiting else "; the others wait until the oldest of them is settled."
    return {"decisions": made, "counted": made - waiting, "until": _until(replica), "words": words}


def _until(replica: Replica) -> float:
    return replica.line[0].time if replica.line else replica.time


def _verdict(replica: Replica, tally: Tally) -> dict[str, Any]:
    control = replica.settings.control
    if tally.trial is None or control is None:
        return {**NO_VERDICT, "rule": None}
    days = max(0.0, _until(replica) - tally.starts[0]) / DAY if tally.starts else 0.0
    return {**tally.trial.verdict(days), "rule": control.rule}


def _challenger(replica: Replica, tally: Tally) -> dict[str, Any] | None:
    trial, settings = tally.trial, replica.settings.challenger
    if trial is None or trial.gain is None or settings is None:
        return None
    (low, high), count = map(float, trial.gain.interval), int(trial.gain.count)
    if not count:
        words = "Nothing is known of the challenger yet."
    elif low > 0.0:
        words = "The challenger would earn more than the policy: promote it."
    elif high < 0.0:
        words = "The policy earns more than the challenger would: step back."
    else:
        words = "No difference shows so far."
    return {
        "policy": settings.policy,
        "share": replica.share,
        "automatic": settings.automatic,
        "since": replica.share_since,
        "count": count,
        "gain": float(trial.gain.estimate) if count else None,
        "low": low,
        "high": high,
        "words": words,
    }


def verdicts(replica: Replica) -> dict[str, Any]:
    """Return whether the loop beats the rule of today, and the same in the segments of each column."""
    tally = replica.seen()
    return {
        **_verdict(replica, tally),
        "maturity": _maturity(replica),
        "segments": {name: _lifts(replica, tally, name) for name in tally.segments.parts},
    }


def segments(replica: Replica, column: str) -> dict[str, Any]:
    """Return the share and the mean reward of each arm in each segment of a column, and the lift there."""
    tally = replica.seen()
    columns = list(tally.segments.parts)
    if column not in columns:
        raise InputError(f"column: unknown column {column!r}{nearest(column, columns)}")
    arms = tally.split(columns.index(column), tally.segments.labels(column, replica.columns[column]))
    return {"column": column, "segments": arms, "lifts": _lifts(replica, tally, column)}


def _lifts(replica: Replica, tally: Tally, column: str) -> list[dict[str, Any]]:
    labels = tally.segments.labels(column, replica.columns[column])
    return tally.trial.by_segment(list(tally.segments.parts).index(column), labels) if tally.trial else []


def _warnings(replica: Replica, tally: Tally) -> list[str]:
    """Return what an operator should know, in words."""
    counts, settings, report = tally.counts, replica.settings, tally.report()
    found, played, best = [], report["reward"], report["best_arm"]
    settled = counts["rewards"] + counts["silent"] + counts["expired"]
    # where silence has a reward, it is one
    missing = counts["expired"] + (counts["silent"] if settings.silence.reward is None else 0)
    if settled >= 20 and missing > 0.5 * settled:
        found.append(f"{missing / settled:.0%} of the settled decisions got no reward: check that rewards are sent.")
    elif counts["silent"] >= 100 and not counts["rewards"]:
        found.append(f"All {counts['silent']} settled decisions were silent: check that rewards are sent.")
    if counts["late"] > max(5, 0.02 * settled):
        found.append(f"{counts['late']} rewards came too late and were not learned: raise silence.after.")
    if counts["unlearned"]:
        found.append(f"{counts['unlearned']} events could not be learned: the loop's columns may have changed.")
    if not report["uniform"]["count"] and played["count"] >= 20:
        found.append("Decisions have no probabilities, so other play cannot be estimated: set exploration_floor.")
    if settings.control is not None and tally.trial is not None:
        split = tally.trial.split()
        if not split["balanced"]:
            found.append(split["words"])
    if best is not None and best["low"] is not None and best["low"] > played["high"]:
        ahead = best["mean"] - played["mean"]
        found.append(f"Always playing {best['arm']!r} would have earned {ahead:.3g} more per decision.")
    if settings.apprentice and counts["decisions"] >= 20:
        found.append(f"Watching only: it agrees with the caller in {counts['agreed'] / counts['decisions']:.0%}.")
    return found


def model(replica: Replica) -> Callable[[], dict[str, Any]]:
    """Return a function that says what the policy has learned; it takes long, and may run in any thread."""
    return partial(_model, replica.policy, replica.columns)


def _model(policy: TablePolicy, columns: Mapping[str, Column]) -> dict[str, Any]:
    """Return noise, sizes, warnings, and the relevance of each variable.

    Variables that matter less than the model is unsure of are left out: they may be noise.
    """
    found = policy.diagnostics()
    names = (
        "observations", "dictionary_size", "effective_dimension", "information_gain", "prior_mean", "memory_bytes",
    )  # fmt: skip
    numbers = {name: getattr(found, name) for name in names}
    numbers |= {"noise_variance": found.regularization, "kernel_changes": len(found.kernel_changes)}
    known = {name: value for name, value in found.relevance.items() if math.isfinite(value)}
    return {
        **{name: value if value is None or math.isfinite(value) else None for name, value in numbers.items()},
        "kernel": "" if found.kernel is None else str(found.kernel)[:500],
        "relevance": {name: value for name, value in known.items() if value > found.uncertainty[name]},
        "left_out": [name for name, value in known.items() if value <= found.uncertainty[name]],
        "variables": [name for name, column in columns.items() if not isinstance(column, Embedding)],
        "warnings": list(found.warnings),
    }


def response(variable: str) -> Callable[[Replica], Callable[[], dict[str, Any]]]:
    """Return the expected reward of each arm over one column, as :func:`model` does."""

    def read(replica: Replica) -> Callable[[], dict[str, Any]]:
        policy, tally, arms = replica.policy, replica.seen(), list[Any]()
        if isinstance(replica.settings.features.actions, Arms) and policy.round_index:
            most = [one["arm"] for one in tally.report()["arms"]]
            known = {str(arm): arm for arm in policy.arms if arm not in replica.retired}
            arms = [known[name] for name in dict.fromkeys([*most, *known]) if name in known][:MOST_LINES]
        return partial(_response, policy, arms, variable, replica.columns, tally.range)

    return read


def _response(
    policy: TablePolicy, arms: Sequence[Any], variable: str, columns: Mapping[str, Column], ends: Any
) -> dict[str, Any]:
    """Return the expected reward of arms over one column, averaged over visitors that were seen.

    Args:
        policy: that expects it.
        arms: the lines.
        variable: the name of the column.
        columns: of contexts.
        ends: the lowest and the highest reward so far; nothing beyond them is expected.
    """
    column = columns.get(variable)
    if column is None:
        raise InputError(f"variable: unknown column {variable!r}{nearest(variable, columns)}")
    if isinstance(column, Embedding):
        raise InputError(f"variable: {variable!r} is an embedding, which has no axis.")
    nothing: dict[str, Any] = {"variable": variable, "values": [], "arms": []}
    if not arms or not policy.round_index:
        return nothing
    try:
        points = policy.points
        rows = [row for row, _ in policy.codec.decode(points[:: max(1, len(points) // VISITORS)][-VISITORS:])]
        values = _values([row[variable] for row in rows], column)
        found = [[policy.predict({**row, variable: value}, arms) for row in rows] for value in values]
    except KernelBanditsError:
        # features of an arm that change from round to round are not known here
        return nothing
    low, high = ends or (-math.inf, math.inf)
    # mean and standard deviation by value and arm
    mean, std = (np.array([np.mean([getattr(one, what) for one in each], axis=0) for each in found]) for what in
                 ("mean", "std"))  # fmt: skip
    lines = {"mean": mean, "low": mean - std, "high": mean + std}
    return {
        "variable": variable,
        "values": [as_plain(value) for value in values],
        "smooth": not isinstance(column, (Categorical, Ordered, Boolean)),
        "arms": [
            {"arm": str(arm), **{name: line[:, place].clip(low, high).tolist() for name, line in lines.items()}}
            for place, arm in enumerate(arms)
        ],
    }


def _values(values: Sequence[Any], column: Column) -> list[Any]:
    """Return the values of an axis: levels, or steps from the 2nd to the 98th percentile."""
    known = [value for value in values if value is not None]
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in known)
    if known and numbers and not isinstance(column, (Categorical, Ordered, Boolean)):
        low, high = np.percentile(known, [2, 98])
        return [float(low)] if low == high else np.linspace(low, high, STEPS).tolist()
    distinct = {repr(value): value for value in known}
    return [distinct[key] for key in sorted(distinct)][:STEPS]


def explanation(replica: Replica, event: Event) -> dict[str, Any]:
    """Return why the action of a decision looks good now, and what was believed when it was made."""
    policy, body = replica.policy, event.body
    found = policy.explain(policy.select(body["context"], [body["action"]]))
    names = ("context", "action", "contribution", "reward")
    return {
        "id": event.decision,
        "action": body["action"],
        "then": {"mean": body["mean"], "std": body["std"], "propensity": body["propensity"]},
        "now": {"mean": found.mean, "exploration": found.exploration, "prior_mean": found.prior_mean},
        "rounds": [{name: as_plain(getattr(one, name)) for name in names} for one in found.rounds],
        "rest": found.rest,
        "words": str(found),
    }
