"""The model of a log: bounded in size, and asked only for the rewards that count."""

import numpy as np
import pytest

import kernel_bandits as kb
from kernel_bandits.offpolicy import Log, RewardModel, evaluate, fitted_model


def far_apart(rows=240):
    """Return a log whose points are as good as orthogonal, so that every round asks for an anchor."""
    generator = np.random.default_rng(0)
    contexts, played = 50.0 * generator.random((rows, 4)), generator.integers(3, size=rows)
    return Log(contexts, played, generator.random(rows), np.full(rows, 1 / 3))


def test_the_number_of_anchors_is_bounded():
    models = fitted_model(far_apart(), RewardModel(kb.Gaussian(1.0), most_anchors=20)).models
    assert [len(model.dictionary_points) for model in models] == [20] * 3
    free = fitted_model(far_apart(), RewardModel(kb.Gaussian(1.0))).models
    assert min(len(model.dictionary_points) for model in free) > 100
    with pytest.raises(kb.InputError, match="most_anchors"):
        RewardModel(kb.Gaussian(1.0), most_anchors=0)


def test_a_fixed_action_has_the_estimates_of_its_table():
    """A table with tiny probabilities asks the model for every action, a fixed one for two at most."""
    generator = np.random.default_rng(1)
    contexts, played = generator.random((200, 2)), generator.integers(3, size=200)
    log = Log(contexts, played, generator.random(200), np.full(200, 1 / 3))
    model = fitted_model(log, RewardModel(kb.Gaussian(0.5)))
    certain = evaluate(log, 1, model=model)
    almost = evaluate(log, np.tile([1e-13, 1.0 - 2e-13, 1e-13], (200, 1)), model=model)
    for name, terms in certain.terms.items():
        np.testing.assert_allclose(terms, almost.terms[name], rtol=0, atol=1e-10)


def test_two_rounds_for_every_fold_are_the_fewest():
    log = far_apart(6)
    assert len(fitted_model(log, RewardModel(kb.Gaussian(1.0), folds=3)).models) == 3
    with pytest.raises(kb.InputError, match="at least 6 rows for 3 folds, got 5"):
        fitted_model(log.rows(slice(0, 5)), RewardModel(kb.Gaussian(1.0), folds=3))


def test_one_fold_has_no_others_to_learn_from():
    with pytest.raises(kb.InputError, match="folds: expected at least 2"):
        RewardModel(kb.Gaussian(1.0), folds=1)
    assert len(fitted_model(far_apart(4), RewardModel(kb.Gaussian(1.0), folds=2)).models) == 2
