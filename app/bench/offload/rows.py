"""The rows of the table: what has to hold of a streamed model, and whether it does."""

from statistics import median

from app.bench.offload.process import Found
from app.bench.rows import Check, Row, row
from app.bench.summary import counts_of, rate_of

MEGABYTE = 1_000_000
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
    checks: list[Check] = []
    figures: dict[str, float] = {}
    for temperature, least in FASTER.items():
        plain, fast = (rate_of(found.of(name, temperature)) for name in (PLAIN, TREES))
        trees = counts_of(found.of(TREES, temperature))
        times = fast / plain if plain else 0.0
        checks.append(Check(f"times plain at temperature {temperature:g}", times, least))
        passes = max(trees.passes, 1)
        figures |= {
            f"temperature {temperature:g}, plain, tokens/s": plain,
            f"temperature {temperature:g}, SpecExec, tokens/s": fast,
            f"temperature {temperature:g}, SpecExec, tokens per pass": trees.emitted / passes,
            f"temperature {temperature:g}, SpecExec, nodes per pass": trees.drafted / passes,
        }
    return row("SpecExec", checks, figures)


def _same(streamed: Found, resident: Found) -> Row:
    """Greedy answers of both drafters against those of the same files held in memory."""
    wanted = resident.of(PLAIN, 0.0)
    pairs = [
        (ours.ids, theirs.ids)
        for name in (PLAIN, TREES)
        for ours, theirs in zip(streamed.of(name, 0.0), wanted, strict=False)
    ]
    agreeing = sum(ours == theirs[: len(ours)] and len(ours) > 0 for ours, theirs in pairs)
    return row(
        "Same tokens",
        [Check("answers equal to the resident model's", agreeing, len(pairs))],
        {"tokens compared": sum(len(ours) for ours, _ in pairs)},
    )
