"""One warm evaluator per machine: its queue, its door on the loopback, and the client of it."""
