"""Which candidates a run trains, and which of them is best."""
