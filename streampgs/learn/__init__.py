"""Solvers: their state arrays, their step over a window's rows, and how to read a model out of the state."""
