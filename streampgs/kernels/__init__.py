"""Compiled loops and the formulas above them. Arrays and numbers in, arrays and numbers out: no files, no options."""
