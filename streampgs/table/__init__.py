"""The table on disk: which shards there are, what is in them, and their columns as Arrow arrays."""
