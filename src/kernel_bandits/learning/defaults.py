"""The numbers that decide what a learned policy does, all in one place.

Each has its meaning and, where one exists, the command that shows what it is worth. Two sets of numbers are not here:
the priors, field by field in :mod:`~kernel_bandits.learning.prior`, and what users set themselves, as arguments of
:class:`~kernel_bandits.KernelLearning`. Numbers that only guard against rounding stand beside the code they guard.
"""

# When a kernel is learned again

# Observations between two fits grow by this factor unless ``KernelLearning(growth=…)`` says another.
# Regret and cost: python benchmarks/learning.py results.jsonl
REFIT_GROWTH = 2.0
# After a reward beyond what counts so far, this factor is enough: it may be the first of a kind.
SURPRISED_GROWTH = 1.2
# As long as there are fewer observations than this, each counts, and the mixed kernel is learned more often,
FEW_OBSERVATIONS = 96
# at intervals of this factor.
FEW_OBSERVATIONS_GROWTH = 1.4
# The same in a box, where each observation is an experiment,
FEW_EXPERIMENTS = 256
# and the factor there. python benchmarks/process_random.py results.jsonl
FEW_EXPERIMENTS_GROWTH = 1.2
# A change of a stationary kernel costs a pass over the history; a gain of fewer nats is not worth it.
WORTHWHILE_NATS = 1.0
# A model that the user gave and that the rewards are drawn from is left with this probability at most, over all fits.
LEAVING_PROBABILITY = 0.05
# A change must not make widths fall by more than it gains, at this many points of the sample and at as many of mixed
# columns.
REFERENCE_POINTS = 128
# λ before anything is known of the rewards, in squared reward units; the output variance is 1 then.
UNKNOWN_NOISE = 0.1

# What is measured of columns

# A column of n rows has a long tail, and is bent, if its standard deviation is more than this, plus 1/√n, times that of
# a normal variable with the same mean absolute deviation (1.15 times for an exponential one).
# python benchmarks/default/parts.py tails
LONG_TAIL = 1.1
# Bends begin at this many of that variable's standard deviations. Chosen among 1, 2 and 3, with and without the
# condition above, on 24 tables.
TAIL_KNEE = 2.0
# Categories are recognised in at most this many rows. python benchmarks/default/parts.py categories
CATEGORY_ROWS = 10_000

# What is measured of rewards

# Fewer rewards say nothing of their tails, and all count as they are.
FEWEST_REWARDS_WITH_TAILS = 16
# Of n rewards log n hide the others if they hold this share of the squared deviations.
DOMINANT_REWARDS_SHARE = 0.75

# The fit of a stationary kernel: python benchmarks/learning.py results.jsonl

# Searches start at the prior median times the best of these powers of e in all lengthscales.
START_LENGTHSCALE_POWERS = (-2.0, -1.0, 0.0, 1.0)
# And once from rewards that are mostly noise: the output variance smaller and the noise larger by this power of e.
MOSTLY_NOISE = 2.0

# The fit of a mixed kernel: python benchmarks/default/tables.py

# A fit looks at this many observations of one function at most, and of K arms apart at √K times as many: the evidence
# takes as long then, whatever K.
SAMPLE_SIZE = 256
# The same of correlated arms.
CORRELATED_SAMPLE_SIZE = 400
# Steps of a search on the logarithms of parameters, from coarse to fine.
SEARCH_STEPS = (1.0, 0.5, 0.25)
# A search asks for at most this many values for each of its directions. With 3, and 288 observations of correlated
# arms, the longest fit takes half the time, and 65 tables (T = 800) lose 0.23 ± 0.09 points (one standard error).
SEARCHED = 5
# The same in a box, where experiments are few and relevance is searched for too. With half as many 2 of 16 plants ended
# more than 5 short, with these 1. python benchmarks/process_random.py results.jsonl --plants 16 --batches 1
BOX_SEARCHED = 12
# A step that gains fewer nats is not taken.
STEP_NATS = 0.01
# Of rewards of two values many are equal, which a function without noise explains better than anything: their noise is
# at least its prior median less this power of e. 65 tables (T = 800) gain 0.05 ± 0.03 points, wisconsin 0.9.
LESS_NOISE = 1.0
# The relevance of variables by their slopes counts not at all, half (as a logarithm) or in full. Without it 17 tables
# lose 0.40 ± 0.20 points (one standard error), and of these a few lose one or two.
RELEVANCE_POWERS = (0.0, 0.5, 1.0)
# Slopes are measured this often in a fit, as long as what they say is worthwhile.
RELEVANCE_ROUNDS = 2
# From there relevance moves up the slope of the evidence, if that gains more than chance. At T = 800 vowel gains 2.4
# points (three shuffles: 6.5, 0.6, 0), letter 1.5 (two), and most tables are played as without.
# The variable of the largest slope moves by one of these powers of e,
UPHILL_SIZES = (1.0, 0.4)
# in at most so many steps, each of which gains so many nats.
UPHILL_STEPS = 6
UPHILL_NATS = 0.5
# In a box relevance is searched for with the other parameters. Its prior is a Cauchy distribution of this scale.
RELEVANCE_WIDTH = 0.3
# Described actions have something of their own if they return: from this many plays of each on, on average.
PLAYS_OF_ONE_ACTION = 2
# Of more named arms it is not learned how they correlate. Of K arms as opposite as can be, an observation of one is
# worth 1 + 1/(K − 1) in all, which beyond this many is not worth a posterior over all of them.
MOST_CORRELATED_ARMS = 5
# Arms are opposites up to this share: of two arms, one never says all of the other.
NEARLY_OPPOSITE = 0.98
# Of arms that are alike, log κ to start from: κ is 1 less the correlation.
ALIKE_CONTRAST = -1.0
# Of more pairs of a context column and an action column it is not learned how the ones move the others.
MOST_MOVES = 64
# Moves are as large as slopes say, or this many times as large,
MOVE_FACTORS = (1.0, 3.0)
# and are measured again at most this often. python benchmarks/default/environments.py
MOVE_ROUNDS = 4

# How far to explore: standard deviations between the mean and the upper bound

# For rewards of any values; half of one more than is right for a known kernel, since this one is uncertain too. Chosen
# on Chessboard and Step Diagonal. python benchmarks/default/environments.py
BONUS = 1.5
# In a box, where a small bonus climbs the slope of a peak step by step: the variance there is as small as what was seen
# of it. Chosen among 1.5, 2, 2.7 and 3.6 on twelve plants. python benchmarks/process_random.py results.jsonl
BOX_BONUS = 3.0
# The least bonus for rewards of two values. With half a deviation, policies with a faint signal stay with an offer that
# is worse than most. python benchmarks/default/shops.py --seeds 20 --visitors 3000
TWO_VALUED_BONUS = 1.0
# The least bonus where the bound would otherwise exceed the upper of two values.
LEAST_TWO_VALUED_BONUS = 0.5
# Rewards are zero-inflated, and the bonus is larger, if the least of them has more than this share,
# python benchmarks/default/parts.py zero-inflated --first 400 --shuffles 8 --horizon 2000
ZERO_INFLATED_SHARE = 0.1
# and was earned more often than this.
ZERO_INFLATED_COUNT = 2

# Where an action was hardly tried: src/kernel_bandits/learning/places.py

# Contexts this far apart, in standard deviations times √n, are in one place. In two columns that is a sixth of what a
# uniform variable spans; in ten of them hardly any two contexts are in one place. python benchmarks/showdown/run.py
PLACE_WIDTH = 0.35
# Of more described actions none is tried that way.
SHORT_LIST = 64
# At most so many plays are remembered, and then every second: a look at them takes as long as a decision.
REMEMBERED_PLAYS = 2048

# When a model no longer holds: python benchmarks/default/changes.py

# Observations before residuals are tested: fewer are about the prior.
FIRST_TESTED_ROUND = 16
# A residual beyond this many standard deviations counts as this many: one outlier is no change.
LARGEST_RESIDUAL = 3.0
# Shifts below this many standard deviations are no change.
TOLERATED_SHIFT = 0.5
# Share of the newest residual in the running mean of squares that scales them,
RESIDUAL_SHARE = 1.0 / 64.0
# and residuals after which that is no plain mean any more.
RESIDUAL_COUNT = 64
# Rewards have changed if the statistic passes this: a model that holds passes 12 once in about 700,000 rounds (Siegmund
# 1985), and a shift of one standard deviation is seen after about 24.
CHANGE_LIMIT = 12.0
# From this share of the limit on, which a model that holds passes in one of about 400 rounds, a fit does not begin the
# test again.
SUSPECT_SHARE = 0.5

# How long rewards take, in decisions: python benchmarks/default/shops.py --shop late

# All are waited for until this share of the decisions is settled,
MOST = 0.5
# or so many are: purchases come before silences do.
FIRST_SETTLED = 64
# Later a decision that has waited longer than any of the last rewards that were told, of so many to twice as many, is
# lost, and not waited for.
RECENT_WAITS = 256
