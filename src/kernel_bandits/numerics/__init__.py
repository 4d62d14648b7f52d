"""Numerical building blocks: linear-algebra identities, BLAS threads, and gradient ascent from many starts."""
