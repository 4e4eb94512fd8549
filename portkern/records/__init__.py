"""What was found: one JSON line per attempt or cell, append-only."""
