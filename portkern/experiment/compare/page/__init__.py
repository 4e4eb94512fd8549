"""Writes what a sweep found for readers: a page, Markdown, CSV and JSON in its folder."""

from portkern.experiment.compare.page.files import again, write
from portkern.experiment.compare.page.words import summary

__all__ = ["again", "summary", "write"]
