"""Grammars that constrain an answer, for drafted tokens as for plain decoding."""
