"""What this machine has, what a model takes of it, and the plan that follows."""
