"""Which row comes next: a pure function of (seed, group sizes, position). Arithmetic only, no files."""
