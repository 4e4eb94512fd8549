"""Runs as MLflow shows them: matrices, generation runs, and the plugin that MLflow loads."""
