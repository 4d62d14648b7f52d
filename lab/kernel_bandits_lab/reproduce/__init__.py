"""The figures and claims of the paper, measured: a folder per figure, with its study and its ``figure.py``.

``kernel-bandits reproduce`` runs the studies, draws the figures, checks the claims and writes a report.
"""
