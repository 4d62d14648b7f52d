"""One file per policy: a JSON manifest and the arrays it names, checksummed, written atomically, never pickle.

Layout: a line that names the format, its number (4 bytes), the length of the manifest (8 bytes), the manifest, the
arrays one after the other, and the SHA-256 of all that. Numbers are big-endian, arrays as they lie in memory. The
manifest describes the policy as the tree of its attributes. The reader looks classes up among those of this library,
those given to :func:`register` and scikit-learn's kernels, and fills in attributes; nothing that a file names is ever
called.
"""

from kernel_bandits.commit import attributes
from kernel_bandits.persistence.classes import register
from kernel_bandits.persistence.file import DIGEST_BYTES, FORMAT, MAGIC, SavedState, from_bytes, read, save, to_bytes
from kernel_bandits.persistence.reseeding import reseed

__all__ = [
    "DIGEST_BYTES",
    "FORMAT",
    "MAGIC",
    "SavedState",
    "attributes",
    "from_bytes",
    "read",
    "register",
    "reseed",
    "save",
    "to_bytes",
]
