"""The work inside a confined worker: build, load, run and time."""
