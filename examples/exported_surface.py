"""Evaluate a surface that ``policy.export`` wrote; copy this file, which needs NumPy alone.

``predict(surface, x)`` takes the joint point: the columns of the context, then those of the action. For the policy of a
table, ``point(surface, context, action)`` makes it from two rows.
"""

from __future__ import annotations

from datetime import datetime

import numpy as np


def kernel(node, x, Y):
    """k(x, y) for a point x (d,) and each row y of Y (m, d)."""
    if node["kind"] == "constant":
        return np.full(len(Y), node["value"])
    if node["kind"] in ("sum", "product"):
        parts = [kernel(part, x, Y) for part in node["parts"]]
        return np.sum(parts, axis=0) if node["kind"] == "sum" else np.prod(parts, axis=0)
    if node["kind"] == "moved":
        start, stop = node["columns"]
        x, Y = x.copy(), Y.copy()
        for points in (x[start:stop], Y[:, start:stop]):
            points[...] = points @ np.array(node["matrix"]).T + node["offset"]
        return kernel(node["kernel"], x, Y)
    if node["kind"] == "bent":
        x, Y = x.copy(), Y.copy()
        for points in (x, Y):
            columns = (points[..., node["bent"]] - node["middle"]) / node["knee"]
            points[..., node["bent"]] = np.arcsinh(columns)
        return kernel(node["kernel"], x, Y)
    x, Y = x[slice(*node["columns"])], Y[:, slice(*node["columns"])]
    if node["kind"] == "dot":
        x, Y = (
            (x - node["centre"]) / node["scale"],
            (Y - node["centre"]) / node["scale"],
        )
        return (Y @ np.array(node["metric"]) @ x + node["offset"]) ** node["degree"]
    q = (((x - Y) / node["scale"]) ** 2).sum(axis=1)
    if node["kind"] == "same":
        return (np.sqrt(q) <= node["within"]).astype(float)
    if node["kind"] == "gaussian":
        return np.exp(-q / 2)
    r = np.sqrt({"exponential": 1, "matern 3/2": 3, "matern 5/2": 5}[node["kind"]] * q)
    return {"exponential": 1, "matern 3/2": 1 + r, "matern 5/2": 1 + r + r * r / 3}[node["kind"]] * np.exp(-r)


def predict(surface, x):
    """Return the mean and the standard deviation of the expected reward at a joint point."""
    phi = np.array(surface["J"]) @ kernel(surface["kernel"], x, np.array(surface["anchors"]))
    mean = surface["prior_mean"] + phi @ surface["w"]
    variance = kernel(surface["kernel"], x, x[None, :])[0] - phi @ phi + phi @ np.array(surface["Q"]) @ phi
    return mean, np.sqrt(max(variance, 0.0))


def turn(share):
    """Return a share of a turn as a point on the circle."""
    return [np.sin(2 * np.pi * share), np.cos(2 * np.pi * share)]


def encoded(variable, value):
    """The columns of one variable."""
    kind, width = variable["kind"], np.diff(variable["columns"])[0]
    if value is None:
        return variable["missing"]
    if kind == "levels":
        known = [vector for level, vector in variable["levels"] if level == value]
        return known[0] if known else variable["other"]
    if kind == "number":
        number = np.log(value) if variable["logarithm"] else value
        columns = [(number - variable["origin"]) / variable["length"]]
    elif kind == "cyclic":
        columns = turn(value / variable["period"])
    elif kind == "date":
        years = (value - datetime(2000, 1, 1)).total_seconds() / (365.25 * 86400)
        midnight = datetime(value.year, value.month, value.day)
        clock = turn((value - midnight).total_seconds() / 86400)
        columns = [years - variable["origin"], *clock, *turn(value.weekday() / 7)]
    else:  # the direction of a vector
        columns = [*np.asarray(value) / np.linalg.norm(value)]
    return columns + [0.0] * (width - len(columns))


def point(surface, context, action):
    """Return the joint point of a row of the context and a row of the action."""
    rows = {"context": context, "action": action}
    parts = [encoded(variable, rows[variable["side"]][variable["name"]]) for variable in surface["variables"]]
    return np.concatenate(parts)
