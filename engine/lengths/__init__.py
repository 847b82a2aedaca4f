"""Registry of length policies: name -> ``module:class``; one file and one line for a new one."""

LENGTHS: dict[str, str] = {
    "acceptance_head": "engine.lengths.acceptance_head:AcceptanceHead",
    "confidence": "engine.lengths.confidence:Confidence",
    "dynamic_exit": "engine.lengths.dynamic_exit:DynamicExit",
    "fixed": "engine.lengths.fixed:Fixed",
    "goodput": "engine.lengths.goodput:Goodput",
    "priced": "engine.lengths.priced:Priced",
}
