"""Many cells: which there are, how they are run, and how each becomes a record."""
