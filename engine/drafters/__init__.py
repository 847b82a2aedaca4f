"""Registry of drafters: name -> ``module:class``. A new drafter is one file and one line here."""

DRAFTERS: dict[str, str] = {
    "none": "engine.drafters.none:Plain",
    "lookup": "engine.drafters.lookup:Lookup",
    "suffix": "engine.drafters.suffix:Suffix",
    "recycling": "engine.drafters.recycling:Recycling",
    "early_exit": "engine.drafters.early_exit:EarlyExit",
    "chain": "engine.drafters.chain:Chain",
    "sequoia": "engine.drafters.sequoia:Sequoia",
    "specexec": "engine.drafters.specexec:SpecExec",
    "format": "engine.drafters.format:Format",
    "auto": "engine.drafters.auto:Auto",
}
