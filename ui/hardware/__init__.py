"""The Hardware tab."""
