"""Where code of others runs: confined workers, and the memory shared with them."""
