"""Everything that touches the inside of a library or of the operating system."""
