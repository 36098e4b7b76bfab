"""What scripts/torture.py and tests/faults are made of."""
