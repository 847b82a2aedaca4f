"""Registry of length policies: name -> ``module:class``; one file and one line for a new one."""

LENGTHS: dict[str, str] = {
    "fixed": "engine.lengths.fixed:Fixed",
    "goodput": "engine.lengths.goodput:Goodput",
}
