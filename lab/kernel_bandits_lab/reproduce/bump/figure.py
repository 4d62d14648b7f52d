"""The figures of the Bump setting in the appendix."""

from functools import partial

from kernel_bandits_lab.reproduce import lambda_grid

figure = lambda_grid.figure
claims = partial(lambda_grid.claims, "Bump")
