"""A stream whose arms change their roles, for tests of what notices it."""

from itertools import count, islice

import numpy as np


def visitors(arms, swap, seed):
    """Yield contexts, which come in clusters, and the arm that is right for each: another one after the swap."""
    generator = np.random.default_rng(seed)
    centres = 1.5 * generator.standard_normal((arms, 6))
    for t in count():
        label = int(generator.integers(arms))
        yield centres[label] + generator.standard_normal(6), (label + (t >= swap)) % arms


def classified(policy, arms, rounds, swap, seed, delay=0):
    """Return which rounds were right; rewards come some rounds late."""
    right, waiting, offered = [], [], np.eye(arms)
    for context, best in islice(visitors(arms, swap, seed), rounds):
        decision = policy.ask(context, offered) if delay else policy.select(context, offered)
        right.append(decision.index == best)
        if delay:
            waiting.append((decision, float(right[-1])))
            if len(waiting) > delay:
                policy.tell(*waiting.pop(0))
        else:
            policy.update(context, decision.action, float(right[-1]))
    return np.array(right)
