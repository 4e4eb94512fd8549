"""The inputs of the executor's tests: seeded bugs, programs, numbers."""
