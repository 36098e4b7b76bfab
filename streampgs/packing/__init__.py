"""What people have becomes shards: text, arrays and tables, read in bounded memory. Knows nothing of training."""
