"""One battery for every dictionary rule, those of a user's own among them, in every way a posterior is used."""

import importlib.util
import pickle
from dataclasses import FrozenInstanceError, dataclass, fields, is_dataclass
from pathlib import Path

import dense
import numpy as np
import pytest

import kernel_bandits as kb
from kernel_bandits.dictionaries import Dictionary, DictionaryRule, Proposal
from kernel_bandits.posterior import NystromPosterior

KERNEL, RIDGE = kb.Gaussian(0.3), 0.1
EXAMPLE = Path(__file__).parents[2] / "examples" / "own_dictionary_rule.py"


def example():
    specification = importlib.util.spec_from_file_location("own_dictionary_rule", EXAMPLE)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


class Everything(Dictionary):
    """The least that a rule can say: every point, for good. It looks at no variance and lets a log be deferred."""

    uses_variance = False

    def propose(self, candidate):
        return Proposal(draw=True)


class Halves(Everything):
    """Draws every point, and at every tenth keeps the half that is least certain."""

    def __init__(self, seen=0):
        self.seen = seen

    def propose(self, candidate):
        return Proposal(draw=True, resample=self.seen == 9)

    def after(self, candidate, proposal, appended):
        return Halves(self.seen + 1)

    def redrawn(self, played):
        variances = played.variances()
        assert variances.shape == (len(played.points),)
        return played.points[variances >= np.median(variances)], Halves()


@dataclass(frozen=True)
class Own(DictionaryRule):
    kind: str

    def start(self, regularization, generator):
        return {
            "everything": Everything,
            "halves": Halves,
            "newest": lambda: NewestFew(),
        }[self.kind]()


class NewestFew(example().NewestPoints):
    """The rule of the example, with few enough points for a short stream."""

    def propose(self, candidate):
        return super().propose(candidate)._replace(resample=self.added == 5)

    def redrawn(self, played):
        _, dictionary = super().redrawn(played)
        return played.points[-12:], dictionary


RULES = {
    "kors": kb.Kors(),
    "kors at another μ": kb.Kors(leverage_regularization=1.0, oversampling=1.0),
    "capped kors": kb.Kors(max_size=6),
    "posterior variance": kb.PosteriorVariance(),
    "fixed": kb.Fixed(np.random.default_rng(3).random((9, 2))),
    "bkb": kb.Resampling(batch_variance_limit=1.0),
    "bbkb": kb.Resampling(batch_variance_limit=3.0),
    "bbkb, first point kept": kb.Resampling(batch_variance_limit=3.0, keeps_first=True),
    **{kind: Own(kind) for kind in ("everything", "halves", "newest")},
}


@pytest.fixture(params=RULES, ids=str)
def rule(request):
    return RULES[request.param]


def built(rule, kernel=KERNEL, seed=0):
    return NystromPosterior(kernel, RIDGE, rule, np.random.default_rng(seed))


def stream(seed, count, places=40):
    """Points that come again now and then."""
    generator = np.random.default_rng(seed)
    points = generator.random((places, 2))[generator.integers(places, size=count)]
    return points, np.sin(5 * points.sum(axis=1)) + 0.1 * generator.normal(size=count)


def learn(posterior, points, rewards):
    for point, reward in zip(points, rewards, strict=True):
        posterior = posterior.updated(point, reward)
    return posterior


def assert_is_dense(posterior, points, rewards, atol=1e-7):
    queries = np.random.default_rng(9).random((20, 2))
    expected = dense.nystrom(KERNEL, posterior.dictionary_points, points, rewards, RIDGE, queries)
    prediction = posterior.predict(queries)
    np.testing.assert_allclose(prediction.mean, expected.mean, atol=atol, rtol=0)
    np.testing.assert_allclose(prediction.std, expected.std, atol=atol, rtol=0)
    assert posterior.log_determinant == pytest.approx(expected.log_determinant, abs=1e-6)
    assert posterior.residual_trace == pytest.approx(expected.residual_trace, abs=1e-6)


def test_the_posterior_is_that_of_its_anchors_one_by_one(rule):
    points, rewards = stream(0, 70)
    posterior = built(rule)
    for t in range(1, 71):
        posterior = posterior.updated(points[t - 1], rewards[t - 1])
        if t % 7 == 0:
            assert_is_dense(posterior, points[:t], rewards[:t])


def test_a_log_gives_the_same_anchors_as_one_by_one(rule):
    points, rewards = stream(0, 150)
    many = built(rule).learned(points[:100], rewards[:100]).learned(points[100:], rewards[100:])
    single = learn(built(rule), points, rewards)
    np.testing.assert_array_equal(many.dictionary_points, single.dictionary_points)
    np.testing.assert_array_equal(many.observed_points, points)
    assert_is_dense(many, points, rewards)


def test_late_rewards(rule):
    """Points are counted when they are played; abandoned ones leave no trace, whatever the dictionary did meanwhile."""
    points, rewards = stream(0, 80)
    posterior = built(rule)
    told, asked = [], []
    for start in range(0, 80, 8):
        keys = list(range(start, start + 8))
        posterior = posterior.awaiting(keys, points[keys])
        asked += keys
        for key in [asked.pop(0) for _ in range(len(asked) // 2)]:
            if key % 5:
                posterior = posterior.settled([key], points[[key]], rewards[[key]])
                told.append(key)
            else:
                posterior = posterior.abandoned([key])
    posterior = posterior.abandoned(asked)
    np.testing.assert_array_equal(posterior.observed_points, points[told])
    assert_is_dense(posterior, points[told], rewards[told])


def test_a_whole_history_at_once(rule):
    points, rewards = stream(0, 60)
    posterior = learn(built(rule).of_history(points, rewards, points[:30]), *(later := stream(1, 20)))
    assert_is_dense(posterior, np.vstack([points, later[0]]), np.append(rewards, later[1]))


def test_with_a_learned_kernel_and_thompson_sampling(rule):
    generator = np.random.default_rng(0)
    for policy in (
        kb.ek_ucb(dictionary=rule, seed=0),
        kb.ek_ucb(KERNEL, dictionary=rule, exploration_floor=0.1, seed=0),
        kb.thompson_sampling(KERNEL, dictionary=rule, seed=0),
        kb.sup_kernel_ucb(KERNEL, dictionary=rule, horizon=40, seed=0),
    ):
        for _ in range(40):
            decision = policy.ask(generator.random(1), generator.random((5, 1)))
            policy.tell(decision.id, float(np.sin(5 * decision.action[0])))
        assert policy.round_index == 40


def test_the_same_seed_is_the_same_run(rule):
    policies = [kb.ek_ucb(KERNEL, dictionary=rule, seed=3) for _ in range(2)]
    one, other = (kb.run(policy, kb.environments.Chessboard(), 60, seed=3) for policy in policies)
    np.testing.assert_array_equal(one.regret, other.regret)
    np.testing.assert_array_equal(one.dictionary_size, other.dictionary_size)


class Failing:
    """Raises at the call that it is told."""

    def __init__(self):
        self.left = None

    def __call__(self, X, Y=None):
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise RuntimeError("the kernel fails")
        return KERNEL(X, Y)

    def diag(self, X):
        return KERNEL.diag(X)


@pytest.mark.parametrize("fails_at", [1, 2, 3, 4])
def test_an_update_that_fails_leaves_the_posterior_usable(rule, fails_at):
    kernel = Failing()
    posterior = built(rule, kernel)
    points, rewards = stream(0, 45)
    for point, reward in zip(points, rewards, strict=True):
        before = pickle.dumps(posterior) if posterior.round_index > 30 else None
        kernel.left = fails_at if before else None
        try:
            after = posterior.updated(point, reward)
        except RuntimeError:
            kernel.left = None
            assert pickle.dumps(posterior) == before
            after = posterior.updated(point, reward)
        posterior, kernel.left = after, None
    assert_is_dense(posterior, points, rewards)


def test_a_rule_is_frozen_and_starts_dictionaries_that_share_nothing(rule):
    if is_dataclass(rule) and fields(rule):
        with pytest.raises(FrozenInstanceError):
            setattr(rule, fields(rule)[0].name, None)
    fresh = built(rule)
    before = pickle.dumps(fresh)
    one, other = (learn(posterior, *stream(0, 30)) for posterior in (fresh, built(rule)))
    np.testing.assert_array_equal(one.dictionary_points, other.dictionary_points)
    assert pickle.dumps(fresh) == before
    again = learn(fresh, *stream(0, 30))
    np.testing.assert_array_equal(again.dictionary_points, one.dictionary_points)


def test_the_example_keeps_the_newest_points():
    points, rewards = stream(0, 500, places=5000)
    posterior = learn(built(example().Newest(), kb.Exponential(0.5)), points, rewards)
    anchors = {anchor.tobytes() for anchor in posterior.dictionary_points}
    newest = {point.tobytes() for point in points[-221:]}
    assert 190 <= len(anchors) <= 221
    assert anchors <= newest


class Mute(Everything):
    def propose(self, candidate):
        return Proposal(resample=True)


@dataclass(frozen=True)
class Silent(DictionaryRule):
    history: str = "all"

    def start(self, regularization, generator):
        return Mute()


@pytest.mark.parametrize("history", ["all", "none"])
def test_what_a_rule_lacks_is_named(history):
    words = {"all": "has no redrawn; write one", "none": "rule with history='all'"}[history]
    posterior = built(Silent(history))
    with pytest.raises(kb.UnavailableError, match=words):
        posterior.updated([0.1, 0.2], 1.0)
    with pytest.raises(kb.UnavailableError, match=words):
        posterior.updated([[0.1, 0.2], [0.3, 0.4]], [1.0, 1.0])
    assert (posterior.round_index, posterior.dictionary_size) == (0, 0)
