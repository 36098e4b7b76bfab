"""Kills, damage and faults of runs on real files. `python -m scripts.checks.torture` tries more of them than the tests do."""
