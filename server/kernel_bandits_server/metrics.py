"""Numbers for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kernel_bandits.errors import needs

with needs("prometheus-client", "kernel-bandits-server"):
    from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Counts requests, and describes the loops when it is read."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "kernel_bandits_requests",
            "Requests by operation and status.",
            ["operation", "status"],
            registry=self._registry,
        )
        self.seconds = Histogram(
            "kernel_bandits_request_seconds",
            "Seconds from a request to its response.",
            ["operation"],
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._loops = _Loops()
        self._registry.register(self._loops)
        # looking a labelled counter up takes longer than counting
        self._counters: dict[tuple[str, int], Any] = {}
        self._histograms: dict[str, Any] = {}

    def observe(self, operation: str, status: int, seconds: float) -> None:
        """Count a request."""
        counter = self._counters.get((operation, status))
        if counter is None:
            counter = self._counters[(operation, status)] = self.requests.labels(operation, str(status))
        histogram = self._histograms.get(operation)
        if histogram is None:
            histogram = self._histograms[operation] = self.seconds.labels(operation)
        counter.inc()
        histogram.observe(seconds)

    def quantiles(self, operation: str) -> dict[str, float]:
        """Return upper bounds of the median and the 99th percentile of the seconds of an operation."""
        histogram = self._histograms.get(operation)
        if histogram is None:
            return {}
        counts = [bucket.get() for bucket in histogram._buckets]
        total, found = sum(counts), {}
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            reached = 0.0
            for bound, count in zip((*_BUCKETS, 60.0), counts, strict=True):
                reached += count
                if reached >= share * total:
                    found[name] = bound
                    break
        return found

    def text(self, loops: Mapping[str, Mapping[str, float]]) -> bytes:
        """Return all numbers in Prometheus's text format, those of each loop among them."""
        self._loops.numbers = loops
        return generate_latest(self._registry)


class _Loops(Collector):
    """The state of each loop."""

    def __init__(self) -> None:
        self.numbers: Mapping[str, Mapping[str, float]] = {}

    def collect(self) -> Iterator[Any]:
        gauges = {
            "ready": "Whether the loop decides.",
            "events": "Events that the loop has taken into account.",
            "waiting": "Requests that wait for the loop.",
            "pending": "Decisions that await their reward.",
            "dictionary_size": "Points or features that carry the model.",
            "leads": "Whether this process settles silent decisions and writes snapshots.",
        }
        families = {
            name: GaugeMetricFamily(f"kernel_bandits_{name}", text, labels=["loop"]) for name, text in gauges.items()
        }
        for name, numbers in self.numbers.items():
            for gauge, value in numbers.items():
                families[gauge].add_metric([name], value)
        yield from families.values()
