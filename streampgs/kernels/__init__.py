"""Compiled loops and the formulas that they use. They take and return arrays and numbers, never files or options."""
