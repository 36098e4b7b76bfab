"""Expressions over the columns of a table, such as `delay > 15`: for --label and --where."""
