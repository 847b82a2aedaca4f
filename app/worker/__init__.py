"""The engine in a process of its own: what goes down to it and comes up."""
