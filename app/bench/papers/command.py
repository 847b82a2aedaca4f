"""The command ``bench seeds``: every claim in one run, a table, a file, an exit code."""

from app.bench.options import CLAIMS, FixedBench
from app.bench.papers.harness import Harness
from app.bench.papers.parallel import each_shown
from app.bench.prompt_files import load_prompts
from app.bench.rows import RowReport
from app.terminal import show_progress

EACH = 10  # open questions of every category


def run(options: FixedBench) -> int:
    """Print each row as it is shown; 0 only if every row holds."""
    prompts = load_prompts(options.prompts, EACH)
    instrument = Harness(options.settings, options.model, prompts, show_progress)
    report = RowReport(options.json)
    machine = report.machine
    report.head(
        f"{machine.cpu}, {machine.cores} cores, torch {machine.torch}, {machine.date}, float32",
        "tokens per second are measured on the inflated model: the same function, the same tokens, "
        "feed-forward parts several times as wide",
    )
    for row in each_shown(options.only or CLAIMS, instrument):
        report.add([row])
    return report.close()
