"""Registry of length policies: name -> ``module:class``; a new policy is one file and one line."""

LENGTHS: dict[str, str] = {
    "acceptance_head": "engine.draft_length.acceptance_head:AcceptanceHead",
    "confidence": "engine.draft_length.early_stop:Confidence",
    "dynamic_exit": "engine.draft_length.dynamic_exit:DynamicExit",
    "fixed": "engine.draft_length.fixed:Fixed",
    "goodput": "engine.draft_length.goodput:Goodput",
    "priced": "engine.draft_length.priced:Priced",
}
