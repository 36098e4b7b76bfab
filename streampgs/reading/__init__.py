"""From a plan of rows to a window of rows in memory: read, decode, cache, check, lay out in visiting order."""
