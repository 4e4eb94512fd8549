"""Hydra configuration, one file per verb."""
