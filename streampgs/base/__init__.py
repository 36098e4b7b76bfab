"""What holds in every part: errors, checks, files."""
