"""Logs of decisions: in memory, in files of several formats, and larger than memory.

Swappable: the format. :func:`read` returns a :class:`Log` of a frame or a file, :func:`scan` one that is looked at part
by part, and :func:`learn` teaches a policy a dataset that need not fit into memory.
"""

from kernel_bandits.logs.log import ContinuousLog, Log
from kernel_bandits.logs.parts import Learned, LogParts, learn, scan
from kernel_bandits.logs.reading import read

__all__ = ["ContinuousLog", "Learned", "Log", "LogParts", "learn", "read", "scan"]
