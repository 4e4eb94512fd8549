"""Builds what was translated, runs it at a target's warp width, and says what was found."""
