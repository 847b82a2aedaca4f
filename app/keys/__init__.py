"""API keys: who may use a server that other machines reach."""
