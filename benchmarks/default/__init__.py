"""What the default, ``kb.ek_ucb(seed=0)`` with nothing set, earns: one module per question, each a command."""
