"""Numbers for Prometheus: requests, counted by Litestar's middleware, and the state of each loop."""

from __future__ import annotations

from typing import Any

from litestar.plugins.prometheus import PrometheusConfig
from prometheus_client import REGISTRY, CollectorRegistry, Gauge, generate_latest

from kernel_bandits_server.worker import Runtime

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_GAUGES = {
    "ready": "Whether the loop decides.",
    "events": "Events that the loop has taken into account.",
    "waiting": "Requests that wait for the loop.",
    "pending": "Decisions that await their reward.",
    "matured": "Decisions that count in the averages.",
    "dictionary_size": "Points or features that carry the model.",
    "leads": "Whether this process settles silent decisions and writes snapshots.",
}


def middleware() -> Any:
    """Return the middleware that counts requests and their seconds by route."""
    return PrometheusConfig(app_name="kernel_bandits", prefix="kernel_bandits", group_path=True).middleware


def text(runtime: Runtime) -> bytes:
    """Return all numbers in Prometheus's text format, those of each loop among them."""
    registry = CollectorRegistry()
    gauges = {
        name: Gauge(f"kernel_bandits_{name}", words, ["loop"], registry=registry) for name, words in _GAUGES.items()
    }
    for loop, worker in runtime.workers.items():
        for name, value in {**worker.gauges(), "leads": float(runtime.leader.leads)}.items():
            gauges[name].labels(loop).set(value)
    return generate_latest(REGISTRY) + generate_latest(registry)
