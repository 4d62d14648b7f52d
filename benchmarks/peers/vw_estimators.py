"""Values and watched intervals against vw-estimators 0.2.2 on random logs: differences, and lengths.

Its confidence sequence is ours of weights alone, with ρ = 1 in place of 16 and guesses that are not clipped; the
difference is taken so.

    pip install vw-estimators==0.2.2
    PYTHONPATH=src python benchmarks/peers/vw_estimators.py
"""

from dataclasses import replace

import numpy as np
from estimators.bandits import cs, ips, snips

from kernel_bandits import offpolicy
from kernel_bandits.offpolicy import CandidateValue, Log, sequences, weighted_terms
from kernel_bandits.offpolicy.sequences import Sums

LOGS, ROUNDS, ACTIONS = 50, 1000, 4


def simulated(seed):
    """Return a log with the probabilities of every action, and those of a candidate."""
    generator = np.random.default_rng(seed)
    logged, target = generator.dirichlet(np.full(ACTIONS, 3.0), (2, ROUNDS))
    logged = 0.2 / ACTIONS + 0.8 * logged
    played = (generator.random((ROUNDS, 1)) > logged.cumsum(axis=1)).sum(axis=1).clip(0, ACTIONS - 1)
    rewards = (generator.random(ROUNDS) < np.linspace(0.1, 0.4, ACTIONS)[played]).astype(float)
    each = np.arange(ROUNDS)
    log = Log(np.empty((0, 0)), played, rewards, logged[each, played], np.eye(ACTIONS), (), logged)
    return log, target, target[each, played]


def theirs(estimator, log, wanted, *asked):
    for propensity, reward, probability in zip(log.propensities, log.rewards, wanted, strict=True):
        estimator.add_example(propensity, reward, probability)
    return np.array(estimator.get(*asked))


def interval(log, wanted, mixture, clipped=True):
    terms = weighted_terms(wanted / log.propensities, log.rewards, 0.0, 1.0, paired=False)
    found = CandidateValue(caps=(0.0,)).after(terms)
    if not clipped:
        guesses = Sums().means_before(terms, 0.5 * np.array([1.0, -1.0])[:, None, None])
        found = replace(found, sums=Sums().path(terms, guesses).at(-1))
    own, sequences.MIXTURE = sequences.MIXTURE, mixture
    ends = np.array(found.interval)
    sequences.MIXTURE = own
    return ends


def main():
    differences, lengths = [], []
    for seed in range(LOGS):
        log, target, wanted = simulated(seed)
        found = offpolicy.evaluate(log, target, model=None).estimates
        their_interval = theirs(cs.Interval(), log, wanted, 0.05)
        differences.append(
            (
                abs(theirs(ips.Estimator(), log, wanted) - found["inverse propensity"].value),
                abs(theirs(snips.Estimator(), log, wanted) - found["self-normalised"].value),
                np.abs(their_interval - interval(log, wanted, 1.0, clipped=False)).max(),
            )
        )
        means = np.full((ROUNDS, ACTIONS), np.nan)
        sums, plays = np.full(ACTIONS, 0.5), np.ones(ACTIONS)
        for row in range(ROUNDS):
            means[row] = sums / plays
            sums[log.played[row]] += log.rewards[row]
            plays[log.played[row]] += 1.0
        of_log = log.probabilities, log.played, log.rewards, means
        modelled = CandidateValue().after(offpolicy.modelled_terms(target, *of_log, 0.0, 1.0)).interval
        ends = their_interval, interval(log, wanted, 16.0), np.array(modelled)
        lengths.append([high - low for low, high in ends])
    by_weights, by_shares, of_sequences = np.max(differences, axis=0)
    print(f"largest difference: IPS {by_weights:.1e}, SNIPS {by_shares:.1e}, confidence sequence {of_sequences:.1e}")
    theirs_mean, weights, means_by_arm = np.mean(lengths, axis=0)
    print(f"length: theirs {theirs_mean:.4f}, of weights {weights:.4f}, with means by arm {means_by_arm:.4f}")


if __name__ == "__main__":
    main()
