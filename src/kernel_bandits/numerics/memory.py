"""Large arrays that come and go."""

import numpy as np

# Numbers of an array whose memory is kept: more than all matrices of an evaluation of a fit together.
KEPT_NUMBERS = 2**21


def keep_freed_arrays() -> None:
    """Keep the memory of freed arrays for the next ones, up to 32 MiB.

    glibc returns the memory of a large array at once, and the kernel clears it before it is used again: a third of the
    time of an evaluation of correlated arms. Freeing one array raises its limit to the size of that array, and to twice
    that what it keeps (mallopt(3), ``M_MMAP_THRESHOLD``). Elsewhere this has no effect.
    """
    np.empty(KEPT_NUMBERS)
