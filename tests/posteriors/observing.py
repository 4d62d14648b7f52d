"""Posteriors after observations, one by one."""


def learn(posterior, points, rewards, weights=None):
    """Return the posterior with each reward in it, in order."""
    for row in range(len(points)):
        one = slice(row, row + 1)
        posterior = posterior.learned(points[one], rewards[one], None if weights is None else weights[one])
    return posterior


def await_each(posterior, points, first=0):
    """Return the posterior that awaits the rewards of points, by keys from the first on."""
    for key, point in enumerate(points, start=first):
        posterior = posterior.awaiting([key], point[None, :])
    return posterior


def settle(posterior, key, points, rewards):
    """Return the posterior with the reward of the awaited point in that row."""
    return posterior.settled([key], points[[key]], rewards[[key]])
