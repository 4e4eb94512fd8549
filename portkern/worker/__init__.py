"""The inside of a confined worker: it builds, loads, runs and times."""
