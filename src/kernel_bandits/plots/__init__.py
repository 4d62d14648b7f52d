"""Figures of a policy: its surface, history and calibration, and its response to one column. Needs matplotlib."""

from kernel_bandits.plots.process import calibration, history, surface
from kernel_bandits.plots.response import response

__all__ = ["calibration", "history", "response", "surface"]
