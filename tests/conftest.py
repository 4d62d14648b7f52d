"""No test depends on how busy the machine is; where CI is set, random examples are the same in every run."""

import os

from hypothesis import settings

settings.register_profile("untimed", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("untimed")
