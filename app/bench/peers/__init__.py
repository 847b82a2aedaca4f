"""``bench peers``: this program and others on the same file and prompts, by turns."""
