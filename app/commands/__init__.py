"""The command line: one module per command, listed here.

Each module has ``add(parser)``, which declares the arguments and calls ``set_command``. It is
imported only when its command is chosen, so that ``slipstream --help`` starts fast.
"""

COMMANDS = {  # name -> (module, help text)
    "ask": ("app.commands.ask", "answer one question in the terminal"),
    "chat": ("app.commands.chat", "talk in the terminal; /help lists its commands"),
    "verify": ("app.commands.verify", "verify that drafting does not change the output"),
    "bench": ("app.commands.bench", "measure drafters against plain decoding"),
    "train-head": ("app.commands.train_head", "train an acceptance head for a draft model"),
    "export": ("app.commands.export", "print how another engine serves a model"),
    "export-gguf": ("app.commands.export_gguf", "write a model folder as one GGUF file"),
    "doctor": ("app.commands.doctor", "show what this machine has and what is missing"),
    "plan": ("app.commands.plan", "show how a model would run, here or on another machine"),
    "history": ("app.commands.history", "show or forget the measurements of drafters"),
    "models": ("app.commands.models", "search, download, import, list and remove models"),
    "keys": (
        "app.commands.keys",
        "make, list and withdraw the keys of a server for other machines",
    ),
    "config": ("app.commands.config", "show the settings and where each one comes from"),
}
