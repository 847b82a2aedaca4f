"""The measuring instrument: drafters side by side with plain decoding, on one machine."""
