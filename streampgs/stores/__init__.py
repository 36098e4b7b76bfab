"""Object stores: what lies at an address, pieces of it, and whole copies on this disk. Knows nothing of tables."""
