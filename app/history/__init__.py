"""Conversations and measured acceptance, kept in one SQLite file."""
