"""The real engine with the bundled model, for measurements: watched, mistaken, and run."""

from dataclasses import replace
from pathlib import Path

from app.bench.lanes import Lane
from app.bench.measure import (
    Conversations,
    Measurement,
    finished,
    measure,
)
from app.bench.options import Conditions
from app.bench.runners import Clock, EngineRunner, base_request
from app.text.chat_text import ChatText
from engine.engine import Engine
from engine.request import (
    Event,
    GenerationRequest,
    ModelFacts,
    ModelSpec,
    Tokens,
)

BUNDLED = Path(__file__).parents[3] / "engine" / "bundled"
SPEC = ModelSpec("pocket", str(BUNDLED / "pocket"), str(BUNDLED / "pocket-draft"), exit_layer=4)
TEXT = ChatText.load(BUNDLED / "pocket")
PLAIN, LOOKUP, CHAIN = Lane("plain", "none"), Lane("lookup", "lookup"), Lane("chain", "chain")
REPEAT = "Repeat this: a b c a b c a b c"
SHORT = Conditions(max_tokens=6, repeats=1, warm_up=False)


class Watched:
    """The real engine; remembers what it was asked, and may alter what it answers."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.numbers: dict[int, GenerationRequest] = {}

    @property
    def facts(self) -> ModelFacts:
        return self.engine.facts

    @property
    def busy(self) -> bool:
        return self.engine.busy

    @property
    def requests(self) -> list[GenerationRequest]:
        """What was not cancelled before it began."""
        return list(self.numbers.values())

    def submit(self, request: GenerationRequest) -> int:
        number = self.engine.submit(request)
        self.numbers[number] = request
        return number

    def cancel(self, request_id: int) -> None:
        self.engine.cancel(request_id)
        del self.numbers[request_id]

    def step(self) -> list[tuple[int, Event]]:
        found = self.engine.step()
        return [(n, self.altered(self.numbers[n], e) if n in self.numbers else e) for n, e in found]

    def altered(self, request: GenerationRequest, event: Event) -> Event:
        return event


class Mistaken(Watched):
    """The drafter lookup gets the third token wrong, in every answer but the first."""

    seen = 0

    def altered(self, request: GenerationRequest, event: Event) -> Event:
        wrong = request.drafter == "lookup" and request.prompt != self.requests[0].prompt
        if not (wrong and isinstance(event, Tokens)):
            return event
        self.seen += 1
        return replace(event, ids=(4000, *event.ids[1:])) if self.seen == 3 else event


def talks(engine, turns, conditions: Conditions) -> Conversations:
    return Conversations(TEXT, engine.facts.context, turns, conditions.together)


def run(
    engine, *turns: tuple[str, ...], lanes=(PLAIN, LOOKUP), conditions=SHORT, watcher=None
) -> Measurement:
    """By answers, on one engine."""
    clock = Clock.DECODING if conditions.together == 1 else Clock.WALL
    runner = EngineRunner(engine, base_request(conditions, TEXT.stop_tokens), clock)
    runners = {lane.name: runner for lane in lanes}
    prompts = talks(engine, turns, conditions)
    return finished(measure(lanes, prompts, conditions, runners, watcher))
