"""Law 6: one contract over every preset, found by inspection."""

import inspect
import pickle

import numpy as np
import pytest
from sklearn.gaussian_process import kernels as sk

import kernel_bandits as kb
from kernel_bandits import presets
from kernel_bandits.dictionaries import Dictionary, Proposal
from kernel_bandits.policy import ThompsonSampling

# a family of kernels has tests of its own, in test_family.py
PRESETS = sorted(set(presets.__all__) - {"family_ucb"})
VARIANTS = [(name, {}) for name in PRESETS] + [
    ("ek_ucb", {"dictionary": kb.Kors(history="none")}),
    ("ek_ucb", {"dictionary": kb.PosteriorVariance()}),
    ("ek_ucb", {"dictionary": kb.Fixed(np.random.default_rng(0).random((7, 3)))}),
    ("cbbkb", {"batch_variance_limit": 1.5}),
    ("sup_kernel_ucb", {"dictionary": kb.Kors()}),
    ("random_features_ucb", {"feature_map": "quadrature"}),
    ("lin_ucb", {"intercept": False}),
    ("ek_ucb", {"exploration_floor": 0.2}),
    ("thompson_sampling", {"dictionary": None}),
    ("ek_ucb", {"learn_kernel": True}),
    ("ek_ucb", {"learn_kernel": kb.KernelLearning(warm_up=40), "dictionary": kb.Kors(history="none")}),
    ("k_ucb", {"learn_kernel": True}),
    ("thompson_sampling", {"exploration_floor": 0.1}),
    ("inverse_gap_weighting", {"dictionary": None, "exploration_floor": 0.1}),
    ("inverse_gap_weighting", {"learn_kernel": True, "effective_actions": 3}),
]
# Fourier features and learned kernels are known for a few shapes only; every other policy takes any kernel.
KERNEL_VARIANTS = [
    (name, options)
    for name, options in VARIANTS
    if "kernel" in inspect.signature(getattr(kb, name)).parameters
    and name != "random_features_ucb"
    and "learn_kernel" not in options
]


def variant_name(variant):
    return "-".join([variant[0], *variant[1]])


def build(name, seed=0, kernel=None, **options):
    function = getattr(kb, name)
    parameters = inspect.signature(function).parameters
    arguments = [kernel or kb.Gaussian(0.5)] if "kernel" in parameters else []
    if "horizon" in parameters:
        options["horizon"] = 60
    return function(*arguments, seed=seed, **options)


def models(policy):
    """The posteriors a policy plays by: one, one per stage, or none."""
    return policy.posteriors


def rounds(count, seed=0, d_x=2, d_a=1):
    generator = np.random.default_rng(seed)
    for _ in range(count):
        yield generator.random(d_x), generator.random((generator.integers(1, 9), d_a)), 0.1 * generator.normal()


def play(policy, count, seed=0):
    indices = []
    for context, actions, noise in rounds(count, seed):
        decision = policy.select(context, actions)
        policy.update(context, decision.action, np.sin(5 * context[0] * decision.action[0]) + noise)
        indices.append(decision.index)
    return indices


@pytest.fixture(params=VARIANTS, ids=variant_name)
def variant(request):
    return request.param


def test_presets_were_found():
    assert set(PRESETS) == {
        *("cbbkb", "cbkb", "cgp_ucb", "ek_ucb", "k_ucb", "lin_ucb", "random_features_ucb", "sup_kernel_ucb"),
        *("inverse_gap_weighting", "thompson_sampling", "uniform"),
    }
    assert all(callable(getattr(kb, name)) for name in PRESETS)


def test_same_seed_same_run(variant):
    name, options = variant
    first, second = build(name, 3, **options), build(name, 3, **options)
    assert play(first, 60) == play(second, 60)
    assert pickle.dumps(first) == pickle.dumps(second)


def test_chance_decides_between_equal_actions(variant):
    name, options = variant
    chosen = {build(name, seed, **options).select([0.5, 0.5], [[0.3]] * 6).index for seed in range(60)}
    assert chosen == set(range(6))


def test_select_leaves_predictions_unchanged(variant):
    name, options = variant
    policy = build(name, **options)
    play(policy, 30)
    context, actions, _ = next(rounds(1, seed=9))
    points = kb.actions.pair(context, actions)
    before = [model.predict(points) for model in models(policy)]
    for other_context, other_actions, _ in rounds(10, seed=8):
        policy.select(other_context, other_actions)
    for prediction, model in zip(before, models(policy), strict=True):
        np.testing.assert_array_equal(prediction.mean, model.predict(points).mean)
        np.testing.assert_array_equal(prediction.std, model.predict(points).std)
    size = policy.dictionary_size
    policy.select(context, actions)
    assert policy.dictionary_size == size


def test_decision_is_consistent(variant):
    name, options = variant
    policy = build(name, **options)
    play(policy, 30)
    for context, actions, _ in rounds(10, seed=4):
        decision = policy.select(context, actions)
        np.testing.assert_array_equal(decision.action, actions[decision.index])
        assert np.isfinite([decision.mean, decision.std, decision.upper_bound]).all()
        np.testing.assert_array_equal(decision.context, context)
        # a draw may fall below the mean
        assert decision.upper_bound >= decision.mean or isinstance(policy, ThompsonSampling)
        assert decision.propensity is None or 0.0 < decision.propensity <= 1.0
        if isinstance(policy.model, kb.posterior.Posterior):
            prediction = policy.predict(context, actions)
            assert decision.mean == pytest.approx(prediction.mean[decision.index], abs=1e-12)
            assert decision.std == pytest.approx(prediction.std[decision.index], abs=1e-12)


BAD_UPDATES = [
    ([0.5, 0.5], [0.5], np.nan, "reward"),
    ([0.5, 0.5], [0.5], np.inf, "reward"),
    ([0.5, 0.5], [0.5], "high", "reward"),
    ([0.5, 0.5], [0.5], None, "reward"),
    ([0.5, np.nan], [0.5], 1.0, "context"),
    ([0.5, 0.5], [-np.inf], 1.0, "action"),
    ([0.5], [0.5], 1.0, "context: expected length 2"),
    ([0.5, 0.5], [0.5, 0.5], 1.0, "action: expected length 1"),
    ([[0.5, 0.5]], [0.5], 1.0, "context: expected a vector"),
    ([0.5, 0.5], 2, 1.0, "action: expected a vector"),
    ([0.5, 0.5], [0.5], 1e200, "reward"),
    (np.ma.masked_array([0.5, 0.5], [True, False]), [0.5], 1.0, "masked"),
    (["a", "b"], [0.5], 1.0, "context: expected real numbers"),
]


@pytest.mark.parametrize(("context", "action", "reward", "words"), BAD_UPDATES)
@pytest.mark.parametrize("after", [0, 40])
def test_a_failed_update_leaves_the_state_byte_for_byte(variant, context, action, reward, words, after):
    if after == 0 and "expected length" in words:
        context, words = [np.nan], "context"
    name, options = variant
    policy = build(name, **options)
    play(policy, after)
    before = pickle.dumps(policy)
    with pytest.raises(kb.InputError, match=words) as caught:
        policy.update(context, action, reward)
    assert isinstance(caught.value, ValueError)
    assert pickle.dumps(policy) == before


@pytest.mark.parametrize(
    ("context", "actions", "words"),
    [
        ([0.5, 0.5], np.empty((0, 1)), "at least one row"),
        ([0.5, 0.5], [0.5, 0.7], "reshape"),
        ([0.5, 0.5], [[0.5, 0.7]], "expected 1 columns"),
        ([0.5, 0.5], [[np.nan]], "actions"),
        ([np.inf, 0.5], [[0.5]], "context"),
        ([0.5, 0.5, 0.5], [[0.5]], "context: expected length 2"),
        ([0.5, 0.5], [[1j]], "real numbers"),
        ([0.5, 0.5], [[0.5], [0.5, 0.5]], "different lengths"),
        ([0.5, 0.5], [], "at least one row"),
        ([0.5, 0.5], np.empty((3, 0)), "column"),
    ],
)
def test_a_failed_select_leaves_the_state_byte_for_byte(variant, context, actions, words):
    name, options = variant
    policy = build(name, **options)
    play(policy, 10)
    before = pickle.dumps(policy)
    with pytest.raises(kb.InputError, match=words):
        policy.select(context, actions)
    assert pickle.dumps(policy) == before


class PoisonedKernel:
    """Not finite wherever a point lies beyond 1, and at any point once more rows than ``most_rows`` are asked for."""

    def __init__(self, value):
        self.value, self.most_rows = value, 10**9

    def __call__(self, X, Y=None):
        Y = X if Y is None else Y
        gram = kb.Gaussian(0.5)(X, Y)
        gram[(X > 1).any(axis=1)[:, None] | (Y > 1).any(axis=1)[None, :]] = self.value
        return gram if len(X) <= self.most_rows else np.full_like(gram, self.value)

    def diag(self, X):
        return np.where((X > 1).any(axis=1), self.value, 1.0)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("variant", KERNEL_VARIANTS, ids=variant_name, indirect=True)
def test_a_kernel_that_is_not_finite_is_reported_and_changes_nothing(variant, value):
    name, options = variant
    policy = build(name, kernel=PoisonedKernel(value), **options)
    play(policy, 20)
    before = pickle.dumps(policy)
    with pytest.raises(kb.InputError, match="not finite"):
        policy.select([0.5, 0.5], [[0.5], [2.0]])
    with pytest.raises(kb.InputError, match="not finite"):
        policy.update([0.5, 0.5], [2.0], 1.0)
    assert pickle.dumps(policy) == before
    play(policy, 5)


class EveryThird(kb.DictionaryRule):
    def start(self, regularization, generator):
        return ThirdDictionary()


class ThirdDictionary(Dictionary):
    def __init__(self, count=0):
        self.count = count

    def propose(self, candidate):
        return Proposal(draw=self.count % 3 == 0)

    def after(self, candidate, proposal, appended):
        return ThirdDictionary(self.count + 1)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_kernel_that_fails_in_the_pass_over_the_history_changes_nothing(value):
    kernel = PoisonedKernel(value)
    policy = build("ek_ucb", kernel=kernel, dictionary=EveryThird())
    # what is no anchor is passed over when one is added
    play(policy, 21)
    before = pickle.dumps(policy)
    kernel.most_rows = 5
    with pytest.raises(kb.InputError, match="not finite between observed points"):
        policy.update([0.0, 1.0], [0.5], 1.0)
    kernel.most_rows = 10**9
    assert pickle.dumps(policy) == before


def test_one_action_and_no_context(variant):
    name, options = variant
    if isinstance(options.get("dictionary"), kb.Fixed):
        options = {"dictionary": kb.Fixed(np.zeros((1, 1)))}
    policy = build(name, **options)
    for t in range(5):
        decision = policy.select([], [[0.3]])
        assert decision.index == 0
        policy.update([], decision.action, float(t))


@pytest.mark.parametrize("preset", [kb.ek_ucb, kb.k_ucb, kb.thompson_sampling, kb.inverse_gap_weighting, kb.lin_ucb])
def test_arms_without_a_context_are_told_apart_with_nothing_set(preset):
    policy, generator, arms = preset(seed=0), np.random.default_rng(0), np.eye(4)
    worth = np.array([0.2, 0.4, 0.9, 0.6])
    policy.update_many(np.zeros((8, 0)), np.tile(arms, (2, 1)), np.tile(worth, 2) + 0.1 * generator.normal(size=8))
    for _ in range(120):
        index = policy.select([], arms).index
        policy.update([], arms[index], worth[index] + 0.1 * generator.normal())
    assert policy.predict([], arms).mean.argmax() == 2


def test_lists_integers_and_single_precision_are_welcome(variant):
    name, options = variant
    policy, same = build(name, **options), build(name, **options)
    for t in range(10):
        one = policy.select([1, 0], [[0], [1], [2]])
        other = same.select(np.array([1, 0], dtype=np.float32), np.array([[0], [1], [2]], dtype=np.int64))
        assert one.index == other.index
        policy.update([1, 0], one.action, t)
        same.update(np.array([1, 0]), one.action.tolist(), np.float32(t))


def test_the_callers_arrays_are_neither_kept_nor_changed(variant):
    name, options = variant
    policy, same = build(name, **options), build(name, **options)
    for context, actions, noise in rounds(20):
        kept_context, kept_actions = context.copy(), actions.copy()
        decision = policy.select(context, actions)
        policy.update(context, decision.action, noise)
        np.testing.assert_array_equal(context, kept_context)
        np.testing.assert_array_equal(actions, kept_actions)
        assert decision.index == same.select(kept_context, kept_actions).index
        same.update(kept_context, kept_actions[decision.index], noise)
        context[:], actions[:], decision.action[:] = 9.0, 9.0, 9.0


@pytest.mark.parametrize("variant", KERNEL_VARIANTS, ids=variant_name, indirect=True)
@pytest.mark.parametrize("kernel", [sk.RBF(0.5), sk.Matern(0.5, nu=1.5) * 2.0 + sk.DotProduct()], ids=repr)
def test_any_scikit_learn_kernel_plays(variant, kernel):
    name, options = variant
    policy = build(name, kernel=kernel, **options)
    indices = play(policy, 30)
    if isinstance(kernel, sk.RBF):
        assert indices == play(build(name, **options), 30)


@pytest.mark.parametrize("seed", [-1, 1.5, "seed", True])
def test_bad_seeds_are_named(variant, seed):
    name, options = variant
    with pytest.raises(kb.InputError, match="seed"):
        build(name, seed=seed, **options)


FIRST_CALLS = {
    "select": lambda policy: policy.select([0.5, 0.5], [[0.5], [0.7]]),
    "update": lambda policy: policy.update([0.5, 0.5], [0.5], 1.0),
    "ask": lambda policy: policy.ask([0.5, 0.5], [[0.5], [0.7]]),
    "select_many": lambda policy: policy.select_many([[0.5, 0.5]], [[0.5], [0.7]]),
    "update_many": lambda policy: policy.update_many([[0.5, 0.5]], [[0.5]], [1.0]),
}
WRONG_KERNELS = [
    (lambda: sk.RBF([1.0, 2.0]), r"kernel: RBF.* does not take points with 3 columns: Anisotropic"),
    (lambda: kb.Gaussian(0.5) + sk.Matern([1.0, 2.0], nu=1.5), "does not take points with 3 columns"),
    (lambda: kb.Gaussian([1.0, 2.0]), "lengthscale: 2 lengthscales were given for points with 3 columns"),
    (lambda: kb.TensorProduct(kb.Linear(), kb.Gaussian(), 1), "context_dimension=2"),
    (lambda: kb.Constant(1.0) + 2.0 * kb.TensorProduct(kb.Linear(), kb.Gaussian(), 1), "context_dimension=2"),
]


@pytest.mark.parametrize("call", FIRST_CALLS)
@pytest.mark.parametrize(("kernel", "words"), WRONG_KERNELS)
@pytest.mark.parametrize(
    ("name", "options"),
    [("k_ucb", {}), ("ek_ucb", {}), ("cbkb", {}), ("thompson_sampling", {}), ("sup_kernel_ucb", {"horizon": 9})],
)
def test_a_kernel_for_other_dimensions_is_named_at_once(name, options, kernel, words, call):
    policy = getattr(kb, name)(kernel(), seed=0, **options)
    before = pickle.dumps(policy)
    with pytest.raises(kb.InputError, match=words):
        FIRST_CALLS[call](policy)
    assert pickle.dumps(policy) == before


def test_rewards_are_counted_however_they_come(variant):
    name, options = variant
    policy = build(name, **options)
    assert policy.round_index == 0
    play(policy, 10)
    policy.update_many(np.full((5, 2), 0.5), np.full((5, 1), 0.5), np.zeros(5))
    asked = [policy.ask([0.5, 0.5], [[0.2], [0.8]]).id for _ in range(3)]
    assert policy.round_index == 15
    policy.tell_many(asked[:2], [0.0, 1.0])
    policy.expire(asked[2])
    assert policy.round_index == 17


def test_a_policy_says_what_it_is_and_where_it_stands(variant):
    name, options = variant
    policy = build(name, **options)
    play(policy, 12)
    words = repr(policy)
    assert words.startswith(f"{type(policy).__name__}(")
    assert "round_index=12" in words
    assert all(repr(model.kernel) in words for model in models(policy))
    assert "\n" not in words
    assert len(words) < 300


def test_policies_by_different_rules_have_different_names_for_themselves():
    kernel = kb.Gaussian(0.5)
    assert repr(kb.ek_ucb(kernel, exploration_floor=0.1)) == (
        "UpperConfidenceBound(NystromPosterior(Gaussian(lengthscale=0.5), regularization=0.1, Kors, history='all', "
        "round_index=0, dictionary_size=0), StandardDeviations(number=1.0), exploration_floor=0.1)"
    )
    built = [
        kb.ek_ucb(kernel),
        kb.ek_ucb(kernel, dictionary=kb.Kors(history="none")),
        kb.cbkb(kernel),
        kb.k_ucb(kernel),
        kb.uniform(),
    ]
    assert len({repr(policy) for policy in built}) == len(built)


def test_choosing_for_others_in_between_leaves_an_update_as_it_was(variant):
    name, options = variant
    policy = build(name, **options)
    play(policy, 12)
    for context, actions, noise in rounds(12, seed=3):
        twin = pickle.loads(pickle.dumps(policy))
        decision = policy.select(context, actions)
        assert twin.select(context, actions) == decision
        policy.select_many(context[None, :] + 0.4, actions)
        policy.update(context, decision.action, noise)
        twin.update(context, decision.action, noise)
    points = kb.actions.pair(context, actions)
    for one, other in zip(models(policy), models(twin), strict=True):
        np.testing.assert_array_equal(one.predict(points).mean, other.predict(points).mean)


def test_policies_take_the_same_regularization_unless_told_otherwise():
    """So that algorithms with nothing set can be compared side by side."""
    signatures = {name: inspect.signature(getattr(kb, name)).parameters for name in PRESETS}
    given = {name: found["regularization"].default for name, found in signatures.items() if "regularization" in found}
    assert len(given) > 8
    assert set(given.values()) == {0.1}
