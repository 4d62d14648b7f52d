"""The bake-off: real tables played as bandits by this library and by its peers, each peer in an environment of its own.

A table is one entry of a module in ``tables``, a library one module in ``libraries``: whoever adds a file to either
has it in every run, statistic and figure. ``run.py`` is the one command.
"""
