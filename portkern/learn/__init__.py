"""Data that models learn from: rewards, and trajectories of runs as data sets."""
