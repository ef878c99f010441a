"""Alembic revisions of the tables, in order of their numbers; written by hand."""
