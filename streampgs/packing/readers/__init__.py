"""One reader for each kind of input that `streampgs pack` reads."""
