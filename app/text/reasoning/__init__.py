"""Thoughts that a model puts between marks of its own, told between the tags that all of Slipstream knows."""
