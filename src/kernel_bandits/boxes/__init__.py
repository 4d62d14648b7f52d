"""Continuous actions: the best action of a box, the first ones to play there, densities, and limits to keep."""
