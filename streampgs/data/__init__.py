"""From a table to a source of windows."""
