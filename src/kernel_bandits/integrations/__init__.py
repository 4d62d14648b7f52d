"""Adapters to other libraries, one module each; a module imports its library when it is imported itself.

- :mod:`~kernel_bandits.integrations.sklearn`: a regressor over the posterior of EK-UCB,
- :mod:`~kernel_bandits.integrations.gymnasium`: our environments there, and our policies in theirs,
- :mod:`~kernel_bandits.integrations.coba`: our policies as learners of its experiments,
- :mod:`~kernel_bandits.integrations.river`: our policies in its evaluations.

Nothing else in this library imports them, and importing this package imports none of them.
"""
