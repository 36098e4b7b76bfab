"""The parts of scripts/torture.py and tests/faults."""
