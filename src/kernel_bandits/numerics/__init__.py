"""Numerical building blocks: linear algebra by identity, BLAS threads, and ascent from many starts."""
