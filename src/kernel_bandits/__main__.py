"""``python -m kernel_bandits`` is the command ``kernel-bandits``."""

from kernel_bandits.experiments.command_line import main

main()
