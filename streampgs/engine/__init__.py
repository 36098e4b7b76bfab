"""Who steps, and when workers meet."""
