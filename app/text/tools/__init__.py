"""Tools: functions that a program offers, and calls of them, in the form that each model was taught."""
