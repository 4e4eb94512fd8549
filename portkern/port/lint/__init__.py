"""Pitfalls of a port that can be read off the text: rules by theme."""
