"""A run's folder: its lock, its record, its checkpoints, its metrics."""
