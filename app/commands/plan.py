"""The command ``plan``: how a model would run on this machine, or on another one."""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace

from app.commands.arguments import add_json, add_model, memory, set_command, whole
from app.errors import SettingsError
from app.models.catalog import find_entry, load_catalog, resolve
from app.models.library.fit import Fit, best, by_shape, fits
from app.models.library.installed import suggestion
from app.models.library.type_advice import TypeAdvice
from app.placement import plans
from app.placement.machine import known_profile
from app.settings import Settings
from app.terminal import write_lines
from engine.hardware.plan import Plan, PlanConstraints, Refusal, Tier
from engine.hardware.planner import plan
from engine.hardware.profile import HardwareProfile, imagined
from engine.hardware.published import MACHINES, MODELS, candidates
from engine.hardware.reasons import TITLES, gib

_HEAD = ("Model", "Machine", "Where", "Form", "Drafter", "Draft model", "Context", "GPU", "RAM")
_NAMED = ("dtype", "drafter")  # the sentence does not say which
_MOST_TOKENS = 2**24
_ANY_DISK = 2**50  # bytes: that of another machine is not known


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Which model on which machine; without ``ram`` it is this one."""

    settings: Settings
    model: str
    gpu: int | None = None  # bytes
    ram: int | None = None  # bytes
    wishes: PlanConstraints = field(default_factory=PlanConstraints)
    json: bool = False
    table: bool = False


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    option = parser.add_argument
    add_model(parser)
    option("--gpu", metavar="SIZE", type=memory, help="GPU memory to plan for, e.g. 8GiB")
    option("--ram", metavar="SIZE", type=memory, help="main memory to plan for, e.g. 16GiB")
    option("--context", metavar="TOKENS", type=whole(1, _MOST_TOKENS), help="longest conversation")
    option("--dtype", choices=("float32", "bfloat16", "int8"), help="number format of the weights")
    option("--no-draft", action="store_true", help="plan without a draft model")
    add_json(parser)
    option(
        "--table", action="store_true", help="print published models on six machines as Markdown"
    )
    set_command(parser, _options, run)


def _options(given: argparse.Namespace, settings: Settings) -> PlanOptions:
    if given.gpu is not None and given.ram is None:
        raise SettingsError(
            "--gpu plans for another machine and needs --ram too, for example 16GiB"
        )
    wishes = PlanConstraints(context=given.context, dtype=given.dtype, draft=not given.no_draft)
    return PlanOptions(settings, given.model, given.gpu, given.ram, wishes, given.json, given.table)


def run(options: PlanOptions) -> int:
    """Print the plan, or the table of published models; 1 when the model cannot run."""
    if options.table:
        write_lines(table())
        return 0
    found, advice = _found(options), _type_advice(options)
    drafts, better = _other_drafts(options), _best(options)
    if options.json:
        more = {"type": advice, "drafts": drafts, "best": better.entry.name if better else ""}
        write_lines([json.dumps({"runs": isinstance(found, Plan), **asdict(found), **more})])
    else:
        write_lines(lines(found))
        notes = {"File type": advice, "Other drafts": drafts} if isinstance(found, Plan) else {}
        notes |= {"Best to get": _offered(better) if better else ""}
        write_lines(f"  {title:<14} {said}" for title, said in notes.items() if said)
    return 0 if isinstance(found, Plan) else 1


def lines(found: Plan | Refusal) -> Iterator[str]:
    """A plan as text: every choice with its reason, then every byte."""
    if isinstance(found, Refusal):
        yield found.sentence
        return
    yield f"{found.model}: {found.stage}"
    for reason in found.why:
        value = getattr(found, reason.field) if reason.field in _NAMED else None
        shown = f"{value}: " if value else ""
        yield f"  {TITLES[reason.field]:<14} {shown}{reason.sentence}"
    for tier, free in found.room:
        if found.needed(tier):
            yield f"  {TITLES[tier]:<14} {gib(found.needed(tier))} of {gib(free)} free"
            yield from (
                f"    {gib(need.bytes):>10}  {need.what}"
                for need in found.needs
                if need.tier == tier
            )


def table() -> Iterator[str]:
    """Published models on six machines, as Markdown."""
    yield "# Plans for published models"
    yield ""
    yield "Printed by `slipstream plan --table`; nothing here is written by hand. Memory is what"
    yield "the plan takes, a margin of 1 GiB for other programs left free. Machines are imagined:"
    yield "what a system takes is 2 GiB of RAM. `fp16` forms run in bfloat16 or float32."
    for name in MODELS:
        yield ""
        yield f"## {name}"
        yield ""
        yield f"| {' | '.join(_HEAD[1:])} |"
        yield f"|{' --- |' * len(_HEAD[1:])}"
        results = {m: plan(machine, candidates(name)) for m, machine in MACHINES.items()}
        yield from (_row(machine, found) for machine, found in results.items())
        yield ""
        yield from (f"- {machine}: {_why(found)}" for machine, found in results.items())


def _row(machine: str, found: Plan | Refusal) -> str:
    if isinstance(found, Refusal):
        cells = ["does not run", *["-"] * 4, gib(found.needed) + " needed", gib(found.free)]
        return f"| {machine} | {' | '.join(cells)} |"
    counts = [(found.placement.count(tier), tier) for tier in Tier]
    where = ", ".join(f"{count} on {tier}" for count, tier in counts if count)
    if found.cpu_experts:
        where += f", experts of {found.cpu_experts} on {Tier.RAM}"
    used = (gib(found.needed(tier)) for tier in (Tier.DEVICE, Tier.RAM))
    cells = [where, found.dtype, found.drafter, found.draft_model or "-", str(found.context), *used]
    return f"| {machine} | {' | '.join(cells)} |"


def _why(found: Plan | Refusal) -> str:
    if isinstance(found, Refusal):
        return found.sentence + "."
    return f"{found.reason('placement')} {found.reason('drafter')}"


def _found(options: PlanOptions) -> Plan | Refusal:
    profile = _machine(options)
    if options.model in MODELS:
        return plan(profile, candidates(options.model), options.wishes)
    entries = {entry.name: entry for entry in load_catalog(options.settings)}
    entry = entries.get(options.model)
    if entry is None or entry.folder is not None or entry.shape is None:
        spec = resolve(options.settings, options.model)
        return plan(profile, plans.candidates(spec, options.wishes), options.wishes)
    # not downloaded yet: its shape is in the catalogue, and so is its draft's
    return plan(profile, by_shape(entry, entries.get(entry.draft or "")), options.wishes)


def _type_advice(options: PlanOptions) -> str:
    """On the type of a GGUF file on this machine; empty for other models and machines."""
    if options.ram is not None or options.model in MODELS:
        return ""
    entry = find_entry(load_catalog(options.settings), options.model)
    return TypeAdvice.read(options.settings).of_entry(entry)


def _other_drafts(options: PlanOptions) -> str:
    """Those of a model in the catalogue that are published, and not used here."""
    if options.model in MODELS:
        return ""
    return find_entry(load_catalog(options.settings), options.model).unused_drafts


def _best(options: PlanOptions) -> Fit | None:
    """The model of the catalogue that suits the machine best; on this one, better than all that are here."""
    if options.ram is None:
        return suggestion(options.settings)
    machine = replace(_machine(options), disk_free=_ANY_DISK)
    return best(fits(load_catalog(options.settings), machine, elsewhere=True))


def _offered(chosen: Fit) -> str:
    name, size = chosen.entry.name, gib(chosen.size)
    get = f"slipstream models pull {name}"
    return f"{name}, {size}, suits this machine best: {get}. {chosen.where}"


def _machine(options: PlanOptions) -> HardwareProfile:
    if options.ram is None:
        return known_profile(options.settings)
    return imagined(options.gpu or 0, options.ram)
