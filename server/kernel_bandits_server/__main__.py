"""``python -m kernel_bandits_server`` is the command ``kernel-bandits-server``."""

from kernel_bandits_server.serve import main

if __name__ == "__main__":
    main()
