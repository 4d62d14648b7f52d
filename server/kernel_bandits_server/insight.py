"""What a loop knows, as JSON for the page: numbers of its log, its model, and warnings in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.tables import Arms, Boolean, Categorical, Column, Embedding, Ordered
from kernel_bandits.tables.values import as_plain, nearest
from kernel_bandits_server.events import Event
from kernel_bandits_server.replica import Replica

STEPS = 25
MOST_LINES = 8
# Past rounds that a response plot takes its range and its other columns from.
SAMPLE = 500


def summary(replica: Replica) -> dict[str, Any]:
    """Return what the log of a loop says: rewards, arms, open decisions, warnings."""
    report = replica.tally.report()
    oldest = next(iter(replica.open.values()), None)
    settings = replica.settings
    return {
        "loop": settings.name,
        "events": replica.applied,
        "time": replica.time,
        "pending": len(replica.open),
        "oldest_time": None if oldest is None else oldest.time,
        "silence": {"after": settings.silence.after, "reward": settings.silence.reward},
        "exploration_floor": settings.exploration_floor,
        "apprentice": settings.apprentice,
        "policy": settings.policy.name,
        **report,
        "warnings": warnings(replica),
    }


def at(found: dict[str, Any], now: float) -> dict[str, Any]:
    """Return a summary as it is read at a time: the oldest decision waits longer while nothing happens."""
    since = found["oldest_time"]
    return {**found, "oldest_pending": None if since is None else max(0.0, now - since)}


def warnings(replica: Replica) -> list[str]:
    """Return what an operator should know, in words."""
    counts, settings = replica.tally.counts, replica.settings
    found = []
    settled = counts["rewards"] + counts["silent"] + counts["expired"]
    missing = counts["silent"] + counts["expired"]
    if settled >= 20 and missing > 0.5 * settled:
        found.append(f"{missing / settled:.0%} of the settled decisions got no reward: check that rewards are sent.")
    if counts["late"] > max(5, 0.02 * settled):
        found.append(f"{counts['late']} rewards came too late and were not learned: raise silence.after.")
    if counts["unlearned"]:
        found.append(f"{counts['unlearned']} events could not be learned: the loop's columns may have changed.")
    if not replica.tally.uniform.count and replica.tally.reward.count >= 20:
        found.append("Decisions have no probabilities, so other play cannot be estimated: set exploration_floor.")
    best = replica.tally.best_arm()
    played = replica.tally.reward.estimate()
    if best is not None and played["mean"] is not None and played["error"] is not None:
        ahead = (best[1]["mean"] or 0.0) - played["mean"]
        error = math.hypot(best[1]["error"] or math.inf, played["error"])
        if ahead > 2.0 * error and played["count"] and played["count"] >= 100:
            found.append(f"Always playing {best[0]!r} would have earned {ahead:.3g} more per decision.")
    if settings.apprentice and counts["decisions"] >= 20:
        found.append(f"Watching only: it agrees with the caller in {counts['agreed'] / counts['decisions']:.0%}.")
    if any(posterior.drift > 1e-6 for posterior in replica.policy.inner.posteriors):
        found.append("The model's inverse has drifted; it is recomputed when it is next checked.")
    return found


def model(replica: Replica) -> dict[str, Any]:
    """Return what the policy has learned: noise, sizes, relevance of each variable."""
    policy = replica.policy
    found = policy.inner.diagnostics()
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
    try:
        relevance = policy.relevance()
    except KernelBanditsError:
        relevance = {}
    variables = [name for name, column in _columns(replica).items() if not isinstance(column, Embedding)]
    return {
        **cleaned,
        "kernel": "" if found.kernel is None else str(found.kernel)[:500],
        "relevance": {name: value for name, value in relevance.items() if math.isfinite(value)},
        "variables": variables,
    }


def response(replica: Replica, variable: str) -> dict[str, Any]:
    """Return the expected reward of each arm as one column of the context changes and the others stay typical."""
    policy, columns = replica.policy, _columns(replica)
    if variable not in columns:
        raise InputError(f"variable: unknown column {variable!r}{nearest(variable, columns)}")
    if isinstance(columns[variable], Embedding):
        raise InputError(f"variable: {variable!r} is an embedding, which has no axis.")
    if not isinstance(policy.features.actions, Arms) or not policy.round_index:
        return {"variable": variable, "values": [], "arms": []}
    points = policy.points[-SAMPLE:]
    rows = [row for row, _ in policy.codec.decode(points)]
    typical = {name: _typical([row[name] for row in rows], column) for name, column in columns.items()}
    values = _values([row[variable] for row in rows], columns[variable])
    plays = replica.tally.plays
    arms = sorted(policy.arms, key=lambda arm: -plays.get(str(arm), 0))[:MOST_LINES]
    lines: list[dict[str, Any]] = [{"arm": str(arm), "mean": [], "std": []} for arm in arms]
    for value in values:
        try:
            prediction = policy.predict({**typical, variable: value}, arms)
        except KernelBanditsError:
            # features of an arm that change from round to round are not known here
            return {"variable": variable, "values": [], "arms": []}
        for line, mean, std in zip(lines, prediction.mean.tolist(), prediction.std.tolist(), strict=True):
            line["mean"].append(mean)
            line["std"].append(std)
    smooth = not isinstance(columns[variable], (Categorical, Ordered, Boolean))
    return {"variable": variable, "values": [as_plain(value) for value in values], "smooth": smooth, "arms": lines}


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


def _columns(replica: Replica) -> Mapping[str, Column]:
    columns = replica.policy.features.context
    return columns if isinstance(columns, Mapping) else {}


def _typical(values: Sequence[Any], column: Column) -> Any:
    """Return the median of numbers, or the most frequent value of anything else."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in known)
    if numbers and not isinstance(column, (Categorical, Ordered)):
        return float(np.median(known))
    counted: dict[str, list[Any]] = {}
    for value in known:
        counted.setdefault(repr(value), []).append(value)
    return max(counted.values(), key=len)[0]


def _values(values: Sequence[Any], column: Column) -> list[Any]:
    """Return the values of an axis: levels, or steps from the 2nd to the 98th percentile."""
    known = [value for value in values if value is not None]
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in known)
    if known and numbers and not isinstance(column, (Categorical, Ordered, Boolean)):
        low, high = np.percentile(known, [2, 98])
        return [float(low)] if low == high else np.linspace(low, high, STEPS).tolist()
    distinct = {repr(value): value for value in known}
    return [distinct[key] for key in sorted(distinct)][:STEPS]
