"""Disturbs single calls of the operating system: the shim, the commands, the points and the law of scripts/checks/faults.py."""
