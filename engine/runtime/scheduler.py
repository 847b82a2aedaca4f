"""Who runs next and in which slot: warm slots by common prefix, the others wait in line."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from engine.drafting.tuning import TUNING
from engine.interfaces.drafter import Context, Drafter, DraftLength, Outcome
from engine.request import DepthCount, DrafterRun, GenerationRequest, Logprob, Prior, Stats, summed
from engine.runtime.components import CacheCapacity
from engine.speculation.common_prefix import common_prefix
from engine.speculation.grammar_mask import GrammarMatcher
from engine.speculation.rng import RandomSource


@dataclass
class DrafterUsage:
    """What one drafter did for one request so far."""

    passes: int = 0
    emitted: int = 0
    drafted: int = 0
    accepted: int = 0
    near_ties: int = 0
    seconds: float = 0.0
    idle_plain_seconds: float = 0.0  # of plain passes for its tokens on an idle machine
    depths: list[list[int]] = field(default_factory=list)  # [evaluated, accepted] per depth

    def count(self, outcome: Outcome) -> None:
        """Record one pass."""
        self.passes += 1
        self.drafted += outcome.tree.drafted
        self.near_ties += outcome.verdict.near_tie
        path = outcome.verdict.path
        accepted, refused = len(path) - 1, bool(outcome.tree.children[path[-1]])
        self.accepted += accepted
        while len(self.depths) < accepted + refused:
            self.depths.append([0, 0])
        for depth in range(accepted):
            self.depths[depth][0] += 1
            self.depths[depth][1] += 1
        if refused:
            self.depths[accepted][0] += 1

    def stats(
        self, drafter: str, shares: tuple[float, ...], weight: float, slowdown: float
    ) -> DrafterRun:
        """The frozen form; ``slowdown`` is how much slower than idle the machine was."""
        depths = tuple(DepthCount(e, a) for e, a in self.depths)
        return DrafterRun(
            drafter, self.passes, self.emitted, self.drafted, self.accepted, self.seconds,
            slowdown * self.idle_plain_seconds, depths, shares, weight,
        )  # fmt: skip


@dataclass
class RunningRequest:
    """The only mutable state of a request while it runs."""

    id: int
    request: GenerationRequest
    drafter: Drafter
    length: DraftLength
    rng: RandomSource
    ids: list[int]  # prompt and emitted tokens
    why: str = "asked for"  # one sentence: why this drafter ran
    grammar: GrammarMatcher | None = None
    priors: dict[str, Prior] = field(default_factory=dict)
    slot: int = -1
    cached: int = 0
    prefill_started: bool = False
    plain_rows: int = 0  # first tokens whose keys and values are those of plain decoding
    paused: bool = False  # others need the memory; what it has read is put away, or read again
    emitted: int = 0
    usage: dict[str, DrafterUsage] = field(default_factory=dict)  # by drafter
    prompt_seconds: float = 0.0
    decode_seconds: float = 0.0
    verify_seconds: float = 0.0  # of them, after the drafts
    idle_verify_seconds: float = 0.0  # what these take on an idle machine
    cancelled: bool = False
    echo: list[Logprob] = field(default_factory=list)  # of the prompt's tokens but the first

    @cached_property
    def context(self) -> Context:
        """The read-only view that drafters and policies get; of a request that has its slot."""
        request = self.request
        return Context(
            self.id, self.slot, self.ids, request.sampling, self.rng, request.stop_tokens,
            self.priors, request.task, len(request.prompt), _predicted(request),
            self.grammar,
        )  # fmt: skip

    @property
    def active_drafter(self) -> str:
        """The name of the drafter that drafted this round; of a drafter with arms, the arm."""
        return self.drafter.active_arm(self.id) or self.request.drafter

    @property
    def slowdown(self) -> float:
        """How much slower than idle the machine was during this answer; plain passes are, too.

        Measured over the whole answer: another program may interrupt a single pass.
        """
        idle = self.idle_verify_seconds
        return self.verify_seconds / idle if idle else 1.0

    def usage_of(self, drafter: str) -> DrafterUsage:
        """What this drafter did so far."""
        return self.usage.setdefault(drafter, DrafterUsage())

    def stats(self, runs: tuple[DrafterRun, ...]) -> Stats:
        """What this request has done so far; ``runs`` are its drafters' parts."""
        runs = tuple(sorted(runs, key=lambda run: -run.emitted))
        return Stats(
            drafter=self.request.drafter,
            why=self.why,
            prompt_tokens=len(self.request.prompt),
            cached_tokens=self.cached,
            emitted=self.emitted,
            passes=sum(run.passes for run in runs),
            drafted=sum(run.drafted for run in runs),
            accepted=sum(run.accepted for run in runs),
            depths=summed([run.depths for run in runs]),
            prompt_seconds=self.prompt_seconds,
            decode_seconds=self.decode_seconds,
            runs=runs,
            near_ties=sum(usage.near_ties for usage in self.usage.values()),
        )


def _predicted(request: GenerationRequest) -> tuple[int, ...]:
    """A prediction as if it had been an earlier answer to the same prompt.

    A stop token follows it, which no drafter drafts beyond, then the prompt's last tokens: so a long
    match at the start of the answer leads into the prediction.
    """
    if not request.prediction:
        return ()
    end = sorted(request.stop_tokens)[:1]
    return (*request.prediction, *end, *request.prompt[-TUNING.longest_match :])


@dataclass
class _Slot:
    ids: list[int] = field(default_factory=list)  # tokens whose keys are cached
    session: str | None = None
    used: int = 0
    taken: bool = False


@dataclass
class RoomChanges:
    """What changes for slots and requests so that those that run have room."""

    emptied: list[int] = field(default_factory=list)  # slots whose tokens have to go
    # Slots to be swapped out, since their text would take part in the passes of others.
    idle: list[int] = field(default_factory=list)
    resumed: list[RunningRequest] = field(default_factory=list)  # they waited for room and have it


class Scheduler:
    """Admits waiting requests to slots in order of arrival.

    There are more slots than requests run at once: conversations stay warm in the others, as many as
    have room.
    """

    def __init__(self, slots: int, warm: int, room: CacheCapacity) -> None:
        """``slots`` requests run at once, ``warm`` further slots."""
        self._slots = [_Slot() for _ in range(slots + warm)]
        self._most, self._room, self._clock = slots, room, 0
        self._changes = RoomChanges()  # since ``make_room``
        self._warm: dict[int, int] | None = None  # slot -> rows that it takes; None: counted again
        self.waiting: deque[RunningRequest] = deque()
        self.running: list[RunningRequest] = []

    def admit(self) -> list[RunningRequest]:
        """Requests that got a slot just now; ``cached`` is how much of the prompt is warm."""
        admitted = []
        while self.waiting and len(self.running) < self._most:
            one = self.waiting.popleft()
            if one.request.cold:
                self.cool()
            one.slot, one.cached = self._choose(one)
            one.cached = 0 if one.request.echo else one.cached
            slot = self._slots[one.slot]
            slot.taken, slot.session, self._warm = True, one.request.session, None
            self.running.append(one)
            admitted.append(one)
        return admitted

    def release(self, ended: RunningRequest, cached: int) -> None:
        """The request is over; its first ``cached`` tokens stay warm in the slot."""
        self.running.remove(ended)
        self._clock += 1
        slot = self._slots[ended.slot]
        slot.ids, slot.taken, slot.used = ended.ids[:cached], False, self._clock
        self._warm = None

    def make_room(self) -> RoomChanges:
        """Give memory to requests in order of arrival; a context fits.

        Idle conversations go first, the oldest before the others, unless they are swapped out. Then
        requests wait, the latest first; the first one always continues.
        """
        changes, left, apart = self._changes, self._room.rows, self._room.apart
        for one in self.running:
            needed, waited = self._room.taken(one.slot, len(one.ids)), one.paused
            one.paused = needed > left and one is not self.running[0]
            if not one.paused:
                left -= needed
                changes.resumed += [one] * waited
            elif needed <= apart:
                apart -= needed
                changes.idle.append(one.slot)
            else:
                one.prefill_started = False
                changes.emptied.append(one.slot)
        self._make_room_of_warm(apart if self._room.apart else left)
        self._changes = RoomChanges()
        return changes

    def _make_room_of_warm(self, left: int) -> None:
        if self._warm is None:
            held = {n: len(slot.ids) for n, slot in enumerate(self._slots) if not slot.taken}
            self._warm = {n: self._room.taken(n, tokens) for n, tokens in held.items() if tokens}
            self._changes.idle += self._warm if self._room.apart else ()
        if sum(self._warm.values()) <= left:
            return
        for number, taken in sorted(self._warm.items(), key=lambda w: -self._slots[w[0]].used):
            left -= taken
            if left < 0:
                self._empty(number)

    def cool(self) -> None:
        """Nothing stays warm."""
        for number, slot in enumerate(self._slots):
            if not slot.taken:
                self._empty(number)

    def _empty(self, number: int) -> None:
        self._slots[number].ids, self._warm = [], None
        self._changes.emptied.append(number)

    def reader(self, new: RunningRequest, held: Callable[[int], int]) -> tuple[int, int]:
        """The other slot that has read most of a prompt, and how many tokens of it.

        ``held`` gives how many tokens of a slot are cached.
        """
        known = {number: slot.ids for number, slot in enumerate(self._slots) if not slot.taken}
        known |= {one.slot: one.ids for one in self.running if one is not new}
        prompt = new.request.prompt
        shared = {number: min(held(number), _shared(ids, prompt)) for number, ids in known.items()}
        best = max(shared, key=shared.__getitem__, default=new.slot)
        return best, shared.get(best, 0)

    def _choose(self, new: RunningRequest) -> tuple[int, int]:
        """The free slot whose text continues here, else an empty one, else the oldest.

        A text that only begins alike, with the same preface say, stays where it is: slots share.
        """
        prompt, session = new.request.prompt, new.request.session
        free = {number: slot for number, slot in enumerate(self._slots) if not slot.taken}
        shared = {number: _shared(slot.ids, prompt) for number, slot in free.items()}

        def merit(number: int) -> tuple[int, bool, bool, int]:
            slot = free[number]
            own = session is not None and slot.session == session
            continues = own or 2 * shared[number] >= max(len(slot.ids), 1)
            return (shared[number] if continues else 0, own, not slot.ids, -slot.used)

        best = max(free, key=merit)
        return best, shared[best]


def _shared(known: Sequence[int], prompt: Sequence[int]) -> int:
    """Common prefix, less the prompt's last token: it becomes the root of the first tree."""
    return min(common_prefix(known, prompt), len(prompt) - 1)
