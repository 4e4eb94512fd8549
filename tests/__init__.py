"""Sentences about behaviour, one file per module."""
