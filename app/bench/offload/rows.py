"""The rows of the table: what has to hold of a streamed model, and whether it does."""

from statistics import median

from app.bench.offload.plan import MEGABYTE, Found, Lane
from app.bench.papers.row import Check, Row, row

PLAIN, TREES = "none", "specexec"
DISK_SHARE = 0.85
ALLOWANCE = 300 * MEGABYTE  # above the limit: the program itself
FASTER = {0.0: 4.0, 0.6: 3.0}  # temperature -> times plain


def rows(streamed: Found, resident: Found, limit: int) -> list[Row]:
    """All of them, in the order in which they are shown."""
    return [
        _streaming(streamed),
        _memory(streamed, limit),
        _speed(streamed),
        _same(streamed, resident),
    ]


def lane(found: Found, drafter: str, temperature: float) -> Lane:
    """All that this drafter did at this temperature, in the order of the prompts."""
    parts = [one for one in found.lanes if (one.drafter, one.temperature) == (drafter, temperature)]
    return Lane(
        drafter,
        temperature,
        tuple(ids for part in parts for ids in part.ids),
        sum(part.passes for part in parts),
        sum(part.drafted for part in parts),
        sum(part.seconds for part in parts),
    )


def _streaming(found: Found) -> Row:
    shares = [ours / disk for ours, disk in zip(found.streaming, found.disk, strict=True)]
    return row(
        "Streaming",
        [Check("share of the disk's sequential rate", median(shares), DISK_SHARE)],
        {
            "direct reads into large pages, GB/s": median(found.disk) / 1e9,
            "direct reads into ordinary pages, as dd's, GB/s": median(found.ordinary) / 1e9,
            "streaming, GB/s": median(found.streaming) / 1e9,
            "read in every pass, GB": found.streamed / 1e9,
            "layers that stay, GB": found.held / 1e9,
            **{f"pass of {n} rows, seconds": seconds for n, seconds in found.knots},
        },
    )


def _memory(found: Found, limit: int) -> Row:
    left = (limit + ALLOWANCE - found.peak) / MEGABYTE
    return row(
        "Memory",
        [Check("MB left below limit + 300 MB, everything in the process counted", left, 0.0)],
        {
            "limit, MB": limit / MEGABYTE,
            "peak of the process, MB": found.peak / MEGABYTE,
            "of it before the model was loaded, MB": found.before / MEGABYTE,
        },
    )


def _speed(found: Found) -> Row:
    checks, figures = [], {}
    for temperature, least in FASTER.items():
        plain, trees = lane(found, PLAIN, temperature), lane(found, TREES, temperature)
        times = trees.rate / plain.rate if plain.rate else 0.0
        checks.append(Check(f"times plain at temperature {temperature:g}", times, least))
        figures[f"temperature {temperature:g}, plain, tokens/s"] = plain.rate
        figures[f"temperature {temperature:g}, SpecExec, tokens/s"] = trees.rate
        figures[f"temperature {temperature:g}, SpecExec, tokens per pass"] = trees.tokens / max(
            trees.passes, 1
        )
        figures[f"temperature {temperature:g}, SpecExec, nodes per pass"] = trees.drafted / max(
            trees.passes, 1
        )
    return row("SpecExec", checks, figures)


def _same(streamed: Found, resident: Found) -> Row:
    """Greedy answers of both lanes against those of the same files held in memory."""
    wanted = lane(resident, PLAIN, 0.0).ids
    pairs = [
        (ours, theirs)
        for name in (PLAIN, TREES)
        for ours, theirs in zip(lane(streamed, name, 0.0).ids, wanted, strict=False)
    ]
    agreeing = sum(ours == theirs[: len(ours)] and len(ours) > 0 for ours, theirs in pairs)
    return row(
        "Same tokens",
        [Check("answers equal to the resident model's", agreeing, len(pairs))],
        {"tokens compared": sum(len(ours) for ours, _ in pairs)},
    )
