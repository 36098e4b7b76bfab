"""Object stores: listings, ranges of bytes, and copies of objects on this disk. Knows nothing of tables."""
