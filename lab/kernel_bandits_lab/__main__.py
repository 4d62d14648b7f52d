"""Run the command ``kernel-bandits`` as ``python -m kernel_bandits_lab``."""

from kernel_bandits_lab.cli import main

main()
