"""Parts of scripts/faults.py: the shim that disturbs calls, the commands, the points and the law."""
