"""The figures of the Chessboard setting in the appendix."""

from functools import partial

from kernel_bandits_lab.reproduce import lambda_grid

figure = lambda_grid.figure
claims = partial(lambda_grid.claims, "Chessboard")
