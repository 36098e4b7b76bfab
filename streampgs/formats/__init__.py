"""Shard formats: facts, slices and decoding of one file each."""
