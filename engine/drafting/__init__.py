"""What drafters share: drafts under construction, n-gram indexes, tree shapes, acceptance models."""
