"""Registry of drafters: name -> ``module:class``. A new drafter is one file and one line here."""

DRAFTERS: dict[str, str] = {
    "none": "engine.drafters.none:Plain",
    "lookup": "engine.drafters.lookup:Lookup",
    "early_exit": "engine.drafters.early_exit:EarlyExit",
    "chain": "engine.drafters.chain:Chain",
    "specexec": "engine.drafters.specexec:SpecExec",
    "auto": "engine.drafters.auto:Auto",
}

AUTO = "auto"
ARMS = ("none", "lookup", "early_exit", "chain", "specexec")  # what ``auto`` chooses among
