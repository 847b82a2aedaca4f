"""Measured costs and rates that drafting decisions read."""
