"""The command line: words in, words and JSON out. Everything else happens elsewhere."""
