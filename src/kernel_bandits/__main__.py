"""Run the command ``kernel-bandits`` as ``python -m kernel_bandits``."""

from kernel_bandits.experiments.cli import main

main()
