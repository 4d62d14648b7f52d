"""The decision service: decisions and rewards over HTTP, each an event in a database before it is acknowledged.

The policy of a loop is a function of its events (:mod:`~kernel_bandits_server.replica`), so any process rebuilds it
from the log. It needs ``pip install kernel-bandits-server``; ``kernel-bandits-server loop.toml`` starts it.
"""
