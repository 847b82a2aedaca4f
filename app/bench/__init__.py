"""Measurements: drafters against plain decoding; papers/ shows the claims of the papers."""
