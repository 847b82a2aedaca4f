"""Pure values and functions of decoding: trees, laws, draws, verification."""
