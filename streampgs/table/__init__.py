"""The table on disk: its shards, their contents, and their columns as Arrow arrays."""
