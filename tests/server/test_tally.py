import random

from kernel_bandits_server.tally import Sums


def test_rewards_of_weight_one_are_summed_as_any_others():
    generator = random.Random(0)
    plain, weighted = Sums(), Sums()
    for count in (1, 7, 100):
        rewards = [generator.gauss(0.0, 1.0) for _ in range(count)]
        plain.add_equal(rewards)
        weighted.add(rewards, [1.0] * count)
        # to the last bit: logs that were summed so before have to give the same state
        assert plain.values == weighted.values
