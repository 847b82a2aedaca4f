"""What the Hugging Face hub says: repositories, their files and digests, search; only when asked."""
