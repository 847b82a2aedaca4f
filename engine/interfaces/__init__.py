"""The seams: what targets, drafters and length policies promise each other."""
