"""What the papers claim, shown on this machine: one file for each claim, one run for all."""
