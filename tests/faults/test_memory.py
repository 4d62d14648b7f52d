"""Memory that runs out: a limit on the address space of a process of its own."""

import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("resource", reason="limits on memory are those of Unix")

# Learns until memory runs out, again and again with less of it, and checks that every call was done or left out.
SCRIPT = textwrap.dedent(
    """
    import resource, sys
    import numpy as np
    import kernel_bandits as kb

    def used():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * resource.getpagesize()

    name, size, limits = sys.argv[1], int(sys.argv[2]), [int(value) for value in sys.argv[3].split(",")]
    make = {
        "k_ucb": lambda: kb.k_ucb(kb.Gaussian(0.2), seed=0),
        "ek_ucb": lambda: kb.ek_ucb(kb.Gaussian(0.05), regularization=0.001, seed=0),
        "learned": lambda: kb.ek_ucb(seed=0),
    }[name]
    generator = np.random.default_rng(0)
    points, rewards = generator.random((size, 3)), generator.random(size)
    policy = make()
    policy.update_many(points[:, :2], points[:, 2:], rewards)
    policy.predict(points[0, :2], points[:50, 2:])
    failures = 0
    for limit in limits:
        before = policy.round_index
        contexts, actions, later = generator.random((size, 2)), generator.random((size, 1)), generator.random(size)
        resource.setrlimit(resource.RLIMIT_AS, (used() + limit, resource.RLIM_INFINITY))
        try:
            policy.update_many(contexts, actions, later)
        except MemoryError:
            failures += 1
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        learned = policy.round_index - before
        assert learned in (0, size), learned
        # what was learned is the whole log, and the model is that of its history
        np.testing.assert_array_equal(policy.observed_points[before:], np.hstack([contexts, actions])[:learned])
        np.testing.assert_allclose(policy.posterior.observed_rewards[before:], later[:learned], atol=1e-12)
        policy.update(contexts[0], actions[0], 0.5)
        prediction = policy.predict(contexts[0], actions[:20])
        assert np.isfinite(prediction.mean).all() and (prediction.std >= 0).all()
    if name == "k_ucb":
        again, known = make(), policy.observed_points
        again.update_many(known[:, :2], known[:, 2:], policy.posterior.observed_rewards)
        np.testing.assert_allclose(again.predict(contexts[0], actions[:20]).mean, prediction.mean, atol=1e-6)
    print(failures)
    """
)


def failures(name, size, limits):
    """How often memory ran out, in a process that checks what is left of its policy."""
    command = [sys.executable, "-c", SCRIPT, name, str(size), ",".join(map(str, limits))]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert finished.returncode == 0, finished.stderr
    return int(finished.stdout)


def test_a_log_that_does_not_fit_is_not_learned_at_all():
    assert failures("k_ucb", 400, [100_000, 1_000_000, 3_000_000]) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["k_ucb", "ek_ucb", "learned"])
def test_many_limits(name):
    assert failures(name, 200, [2**exponent for exponent in range(12, 23)]) >= 3
