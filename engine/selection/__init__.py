"""What ``auto`` decides by: what arms measured, who is tried, which copies pay."""
