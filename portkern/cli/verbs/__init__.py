"""One module per verb of the command line: its options and what it does."""
