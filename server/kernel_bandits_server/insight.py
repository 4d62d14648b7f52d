"""What a loop knows, as JSON for the page: numbers of its log, its model, and warnings in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.tables import Arms, Boolean, Categorical, Column, Embedding, Ordered, TablePolicy
from kernel_bandits.tables.values import as_plain, nearest
from kernel_bandits_server.events import Event
from kernel_bandits_server.replica import Replica
from kernel_bandits_server.tally import Tally
from kernel_bandits_server.trial import by_segment, verdict

STEPS, MOST_LINES = 15, 8
# Past visitors that a response is averaged over.
VISITORS = 40
DAY = 86_400.0
# Seconds by which clocks of machines may differ.
CLOCK = 60.0


def summary(replica: Replica) -> dict[str, Any]:
    """Return what the log of a loop says: rewards, arms, groups, open decisions, warnings."""
    tally, settings = replica.tally.view(), replica.settings
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
        "columns": tally.segments.columns,
        "warnings": warnings(replica, tally),
    }


def _maturity(replica: Replica) -> dict[str, Any]:
    """Return how many decisions the averages count: all before the first whose reward is not settled."""
    made, waiting = replica.tally.counts["decisions"], len(replica.line)
    until = replica.line[0].time if replica.line else replica.time
    words = f"The averages count {made - waiting} of {made} decisions"
    words += "." if not waiting else f"; the first of the other {waiting} still awaits its reward."
    return {"decisions": made, "counted": made - waiting, "until": until, "words": words}


def _verdict(replica: Replica, tally: Tally) -> dict[str, Any]:
    rule = replica.settings.control and replica.settings.control.rule
    return {**verdict(tally.trial, _days(replica, tally)), "rule": rule}


def _days(replica: Replica, tally: Tally) -> float:
    until = replica.line[0].time if replica.line else replica.time
    return max(0.0, until - tally.starts[0]) / DAY if tally.starts else 0.0


def _challenger(replica: Replica, tally: Tally) -> dict[str, Any] | None:
    trial, settings = tally.trial, replica.settings.challenger
    if trial is None or trial.gain is None or settings is None:
        return None
    low, high = trial.gain.interval
    count = int(trial.gain.above.count)
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
        "gain": trial.gain.estimate,
        "low": low,
        "high": high,
        "words": words,
    }


def verdicts(replica: Replica) -> dict[str, Any]:
    """Return whether the loop beats the rule of today, and the same in the segments of each column."""
    tally = replica.tally.view()
    columns = tally.segments.columns
    return {
        **_verdict(replica, tally),
        "maturity": _maturity(replica),
        "segments": {
            name: by_segment(tally.trial, place, tally.segments.labels(name)) for place, name in enumerate(columns)
        },
    }


def segments(replica: Replica, column: str) -> dict[str, Any]:
    """Return the share and the mean reward of each arm in each segment of a column, and the lift there."""
    tally = replica.tally.view()
    columns = tally.segments.columns
    if column not in columns:
        raise InputError(f"column: unknown column {column!r}{nearest(column, columns)}")
    lifts = by_segment(tally.trial, columns.index(column), tally.segments.labels(column))
    return {"column": column, "segments": tally.by_segment(column), "lifts": lifts}


def at(found: dict[str, Any], now: float) -> dict[str, Any]:
    """Return a summary as it is read at a time: the oldest decision waits longer while nothing happens."""
    since, ahead = found["oldest_time"], found["time"] - now
    warnings = list(found["warnings"])
    if ahead > CLOCK:
        warnings.append(
            f"The log is {ahead:.0f} s ahead of this machine's clock: until that has passed, no decision counts as "
            "silent. Set the clocks of all machines."
        )
    return {**found, "oldest_pending": None if since is None else max(0.0, now - since), "warnings": warnings}


def warnings(replica: Replica, tally: Tally) -> list[str]:
    """Return what an operator should know, in words."""
    counts, settings = tally.counts, replica.settings
    found = []
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
    if not tally.uniform["count"] and (tally.reward["count"] or 0) >= 20:
        found.append("Decisions have no probabilities, so other play cannot be estimated: set exploration_floor.")
    if tally.trial is not None and tally.trial.lift is not None:
        split = verdict(tally.trial, 0.0)["split"]
        if not split["as_it_should_be"]:
            found.append(split["words"])
    best, played = tally.best_arm(), tally.reward
    if best is not None and played["mean"] is not None and played["error"] is not None:
        ahead = (best["mean"] or 0.0) - played["mean"]
        error = math.hypot(best["error"] or math.inf, played["error"])
        if ahead > 2.0 * error and (played["count"] or 0) >= 100:
            found.append(f"Always playing {best['arm']!r} would have earned {ahead:.3g} more per decision.")
    if settings.apprentice and counts["decisions"] >= 20:
        found.append(f"Watching only: it agrees with the caller in {counts['agreed'] / counts['decisions']:.0%}.")
    return found


def model(policy: TablePolicy) -> dict[str, Any]:
    """Return what a policy has learned: noise, sizes, relevance of each variable, warnings.

    Variables that matter less than the model is unsure of an expected reward are left out: they may be noise.
    """
    found = policy.diagnostics()
    numbers = {
        "observations": found.observations,
        "dictionary_size": found.dictionary_size,
        "effective_dimension": found.effective_dimension,
        "information_gain": found.information_gain,
        "noise_variance": found.regularization,
        "prior_mean": found.prior_mean,
        "memory_bytes": found.memory_bytes,
        "kernel_changes": len(found.kernel_changes),
    }
    cleaned = {name: value if value is None or math.isfinite(value) else None for name, value in numbers.items()}
    unsure = _uncertainty(policy)
    known = {name: value for name, value in found.relevance.items() if math.isfinite(value)}
    return {
        **cleaned,
        "kernel": "" if found.kernel is None else str(found.kernel)[:500],
        "relevance": {name: value for name, value in known.items() if value > unsure},
        "unsure": unsure,
        "left_out": [name for name, value in known.items() if value <= unsure],
        "variables": [name for name, column in _columns(policy).items() if not isinstance(column, Embedding)],
        "warnings": list(found.warnings),
    }


def _uncertainty(policy: TablePolicy) -> float:
    """Return the standard deviation of an expected reward, averaged over past rounds."""
    if not policy.posteriors or not policy.round_index:
        return 0.0
    try:
        return float(np.mean(policy.posteriors[0].predict(policy.points[-VISITORS:]).std))
    except KernelBanditsError:
        return 0.0


def response(policy: TablePolicy, arms: Sequence[Any], variable: str, ends: Sequence[float] | None) -> dict[str, Any]:
    """Return the expected reward of each arm over one column, averaged over visitors that were seen.

    Args:
        policy: that expects it.
        arms: the lines.
        variable: the column.
        ends: the lowest and the highest reward so far; nothing beyond them is expected.
    """
    columns = _columns(policy)
    if variable not in columns:
        raise InputError(f"variable: unknown column {variable!r}{nearest(variable, columns)}")
    if isinstance(columns[variable], Embedding):
        raise InputError(f"variable: {variable!r} is an embedding, which has no axis.")
    nothing: dict[str, Any] = {"variable": variable, "values": [], "arms": []}
    if not arms or not policy.round_index:
        return nothing
    try:
        points = policy.points
        rows = [row for row, _ in policy.codec.decode(points[:: max(1, len(points) // VISITORS)][-VISITORS:])]
        values = _values([row[variable] for row in rows], columns[variable])
        found = [[policy.predict({**row, variable: value}, arms) for row in rows] for value in values]
    except KernelBanditsError:
        # features of an arm that change from round to round are not known here
        return nothing
    low, high = ends or (-math.inf, math.inf)
    lines = []
    for place, arm in enumerate(arms):
        means = [float(np.mean([one.mean[place] for one in each])) for each in found]
        stds = [float(np.mean([one.std[place] for one in each])) for each in found]
        line = {"mean": means, "low": [m - s for m, s in zip(means, stds, strict=True)]}
        line["high"] = [m + s for m, s in zip(means, stds, strict=True)]
        lines.append({"arm": str(arm), **{key: np.clip(each, low, high).tolist() for key, each in line.items()}})
    smooth = not isinstance(columns[variable], (Categorical, Ordered, Boolean))
    return {"variable": variable, "values": [as_plain(value) for value in values], "smooth": smooth, "arms": lines}


def response_of(replica: Replica, variable: str) -> tuple[TablePolicy, list[Any], str, list[float] | None]:
    """Return the arguments of :func:`response`: it takes long, and the policy may be read in any thread."""
    tally, arms = replica.tally.view(), []
    if isinstance(replica.settings.features.actions, Arms) and replica.policy.round_index:
        plays = {name: tally.plays[place] for name, place in tally.arms.items()}
        known = [arm for arm in replica.policy.arms if arm not in replica.retired]
        arms = sorted(known, key=lambda arm: -plays.get(str(arm), 0))[:MOST_LINES]
    return replica.policy, arms, variable, tally.range


def explanation(replica: Replica, event: Event) -> dict[str, Any]:
    """Return why the action of a decision looks good now, and what was believed when it was made."""
    policy, body = replica.policy, event.body
    found = policy.explain(policy.select(body["context"], [body["action"]]))
    return {
        "id": event.decision,
        "action": body["action"],
        "then": {"mean": body["mean"], "std": body["std"], "propensity": body["propensity"]},
        "now": {"mean": found.mean, "exploration": found.exploration, "prior_mean": found.prior_mean},
        "rounds": [
            {
                "context": as_plain(one.context),
                "action": as_plain(one.action),
                "contribution": one.contribution,
                "reward": one.reward,
            }
            for one in found.rounds
        ],
        "rest": found.rest,
        "words": str(found),
    }


def _columns(policy: TablePolicy) -> Mapping[str, Column]:
    columns = policy.features.context
    return columns if isinstance(columns, Mapping) else {}


def _values(values: Sequence[Any], column: Column) -> list[Any]:
    """Return the values of an axis: levels, or steps from the 2nd to the 98th percentile."""
    known = [value for value in values if value is not None]
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in known)
    if known and numbers and not isinstance(column, (Categorical, Ordered, Boolean)):
        low, high = np.percentile(known, [2, 98])
        return [float(low)] if low == high else np.linspace(low, high, STEPS).tolist()
    distinct = {repr(value): value for value in known}
    return [distinct[key] for key in sorted(distinct)][:STEPS]
