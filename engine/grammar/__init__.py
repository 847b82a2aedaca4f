"""Grammars: what an answer may look like, held at every drafted token as in plain decoding."""
