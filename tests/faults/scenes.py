"""Policies in the middle of their work, and the calls that change them."""

import copy
from functools import cache

import numpy as np

import kernel_bandits as kb

KERNEL = kb.Gaussian(0.4)


POLICIES = {
    "k_ucb": lambda: kb.k_ucb(KERNEL, seed=0),
    "ek_ucb": lambda: kb.ek_ucb(KERNEL, seed=0),
    "ek_ucb, small λ": lambda: kb.ek_ucb(KERNEL, regularization=0.001, seed=0),
    "ek_ucb, no history": lambda: kb.ek_ucb(KERNEL, dictionary=kb.Kors(history="none"), seed=0),
    "ek_ucb, variance": lambda: kb.ek_ucb(KERNEL, dictionary=kb.PosteriorVariance(), seed=0),
    "ek_ucb, exploring": lambda: kb.ek_ucb(KERNEL, exploration_floor=0.2, seed=0),
    "ek_ucb, learned": lambda: kb.ek_ucb(seed=0),
    "k_ucb, learned": lambda: kb.k_ucb(KERNEL, learn_kernel=True, seed=0),
    "cbkb": lambda: kb.cbkb(KERNEL, seed=0),
    "cbbkb": lambda: kb.cbbkb(KERNEL, seed=0),
    "lin_ucb": lambda: kb.lin_ucb(seed=0),
    "random_features_ucb": lambda: kb.random_features_ucb(KERNEL, number_of_features=16, seed=0),
    "thompson_sampling": lambda: kb.thompson_sampling(KERNEL, number_of_draws=5, seed=0),
    "thompson_sampling, learned": lambda: kb.thompson_sampling(number_of_draws=5, seed=0),
    "sup_kernel_ucb": lambda: kb.sup_kernel_ucb(KERNEL, horizon=100, seed=0),
    "uniform": lambda: kb.uniform(seed=0),
    "discount": lambda: kb.ek_ucb(KERNEL, forgetting=kb.Discount(8.0), seed=0),
    "discount, learned": lambda: kb.ek_ucb(forgetting=kb.Discount(8.0), seed=0),
    "window": lambda: kb.k_ucb(KERNEL, forgetting=kb.Window(8), seed=0),
    "wander": lambda: kb.ek_ucb(KERNEL, forgetting=kb.Wander(8.0), seed=0),
    "inverse gap": lambda: kb.inverse_gap_weighting(KERNEL, seed=0),
    "inverse gap, learned": lambda: kb.inverse_gap_weighting(seed=0),
    "no history, learned": lambda: kb.ek_ucb(dictionary=kb.Kors(history="none"), seed=0),
    "family_ucb": lambda: kb.family_ucb(
        [kb.Gaussian(0.2), KERNEL],
        confidence=kb.Tightened(norm_bound=1.0, noise_bound=0.3, failure_probability=0.1),
        seed=0,
    ),
}
# One of each way to keep a model: exact, projected, on features, learned, in stages, as a family; and one that draws.
KINDS = ("k_ucb", "ek_ucb", "random_features_ucb", "discount, learned", "sup_kernel_ucb", "family_ucb")
KINDS = (*KINDS, "thompson_sampling", "cbkb", "ek_ucb, learned")


def constrained():
    """A policy that keeps a pressure below a limit."""
    policy = kb.ek_ucb(KERNEL, seed=0)
    return policy.constrained({"pressure": kb.Below(8.0, KERNEL)}, safe_actions=[[0.1]], if_unsafe="flag")


# Before a first round, before the round that checks for drift, and before one that learns a kernel.
ROUNDS = (0, 15, 63)
CONTEXTS, OFFERS = np.random.default_rng(1).random((80, 2)), np.random.default_rng(2).random((80, 4, 1))
NEW_CONTEXTS = np.random.default_rng(3).random((3, 2))
LOG = NEW_CONTEXTS, np.random.default_rng(4).random((3, 1)), np.array([0.1, 0.7, 0.4])
BOX = kb.Box([0.0], [1.0])


def played(make, rounds: int, pending: int = 0):
    """A policy after some rounds, with some decisions that await their reward."""
    policy = make()
    for context, offered in zip(CONTEXTS[:rounds], OFFERS[:rounds], strict=True):
        decision = policy.select(context, offered)
        policy.update(context, decision.action, float(np.sin(5.0 * context[0]) + decision.action[0]))
    for context, offered in zip(CONTEXTS[rounds : rounds + pending], OFFERS[rounds:], strict=False):
        policy.ask(context, offered)
    return policy


def _update_chosen(policy):
    """The update of the last choice, which ``prepare`` made."""
    policy.update(CONTEXTS[70], policy._last[2][2:], 0.5)


def _choose(policy):
    policy.select(CONTEXTS[70], OFFERS[70])


# Each call with what comes before it, and how many decisions are pending.
CALLS = {
    "select": (None, 0, lambda p: p.select(CONTEXTS[70], OFFERS[70])),
    "select of equal actions": (None, 0, lambda p: p.select(CONTEXTS[70], np.ones((4, 1)))),
    "preview": (None, 0, lambda p: p.preview(CONTEXTS[70], np.ones((4, 1)))),
    "update": (None, 0, lambda p: p.update(CONTEXTS[71], [0.3], 0.5)),
    "update of the choice": (_choose, 0, _update_chosen),
    "update while pending": (None, 3, lambda p: p.update(CONTEXTS[71], [0.3], 0.5)),
    "update with a weight": (None, 0, lambda p: p.update(CONTEXTS[71], [0.3], 0.5, weight=2.0)),
    "update_many": (None, 0, lambda p: p.update_many(*LOG)),
    "select_many": (None, 0, lambda p: p.select_many(NEW_CONTEXTS, OFFERS[70])),
    "ask": (None, 0, lambda p: p.ask(CONTEXTS[70], OFFERS[70])),
    "ask while pending": (None, 3, lambda p: p.ask(CONTEXTS[70], np.ones((4, 1)))),
    "ask_many": (None, 2, lambda p: p.ask_many(NEW_CONTEXTS, OFFERS[70])),
    "await_many": (None, 2, lambda p: p.await_many(*LOG[:2])),
    "tell": (None, 3, lambda p: p.tell(1, 0.5)),
    "tell the last": (None, 1, lambda p: p.tell(0, 0.5)),
    "tell with a weight": (None, 3, lambda p: p.tell(1, 0.5, weight=0.5)),
    "tell_many": (None, 3, lambda p: p.tell_many([0, 2], [0.5, 0.1])),
    "expire": (None, 3, lambda p: p.expire(1)),
    "expire_before": (None, 3, lambda p: p.expire_before(2)),
    "select in a box": (None, 0, lambda p: p.select(CONTEXTS[70], BOX)),
    "ask in a box": (None, 2, lambda p: p.ask(CONTEXTS[70], BOX)),
    "refusal": (None, 0, lambda p: _refused(p)),
}
# Calls that some policies do not take.
NOT_TAKEN = {
    "family_ucb": ("weight", "box"),
    "sup_kernel_ucb": ("weight", "box"),
    "uniform": ("weight",),
}
SCENES = [
    (name, call)
    for name in POLICIES
    for call in CALLS
    if not any(call.endswith(word) for word in NOT_TAKEN.get(name, ()))
]


def _refused(policy):
    try:
        policy.update(CONTEXTS[70], [np.nan], 0.5)
    except kb.InputError:
        return


@cache
def _once(name: str, rounds: int, pending: int):
    return played(POLICIES[name], rounds, pending)


def scene(name: str, rounds: int, call: str):
    """A function that returns the policy before a call, another one each time, and the call."""
    prepare, pending, act = CALLS[call]

    def before():
        policy = copy.deepcopy(_once(name, rounds, pending))
        if prepare is not None:
            prepare(policy)
        return policy

    return before, act


def table(kernel=KERNEL):
    """A policy over a table that has met two towns and two arms."""
    features = kb.Features(context={"age": kb.Numeric((0.0, 1.0)), "town": kb.Categorical()}, actions=kb.Arms())
    policy = kb.ek_ucb(kernel, features=features, seed=0)
    for age, town, arm in ((0.1, "Graz", "red"), (0.5, "Linz", "blue"), (0.9, "Graz", "blue")):
        policy.update({"age": age, "town": town}, arm, age)
    return policy


NEW_ROW = {"age": 0.3, "town": "Wien"}
TABLE_CALLS = {
    "select": lambda p: p.select(NEW_ROW, ["red", "green"]),
    "update": lambda p: p.update(NEW_ROW, "green", 0.5),
    "update_many": lambda p: p.update_many([NEW_ROW, NEW_ROW], ["green", "white"], [0.5, 0.1]),
    "ask": lambda p: p.ask(NEW_ROW, ["green", "white"]),
}
