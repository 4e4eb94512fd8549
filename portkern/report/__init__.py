"""Views of the records for people."""
