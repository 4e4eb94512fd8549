"""What the executor is tested with: seeded bugs, programs, numbers."""
