"""The measuring loop of ``bench gguf``: lanes take turns at every pass, in one process.

What disturbs a machine lasts for seconds, and meets all lanes of a prompt alike. What a session
learns on its first questions is not counted.
"""

import gc
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from pathlib import Path

from app.bench.gguf.rivals import LOOKUP, PLAIN, Question, Rival, Runner, Step
from app.bench.papers.prompts import Category, PromptSet
from app.bench.prompt_files import Turns
from app.bench.race import take_turns
from app.errors import RequestFailed
from app.history.task_class import task_class
from app.request import Message
from app.text.chat_text import ChatText
from engine.build import build
from engine.engine import Engine
from engine.request import Done, FinishReason, GenerationRequest, ModelSpec, Tokens

OURS, AUTO = "plain", "auto"
LANES = (OURS, AUTO, PLAIN, LOOKUP)
CHORES, PROBLEMS = "text chores", "GSM8K"
FIRST = 3  # questions and chores at the start of a session
CHORE_COUNT, PROBLEM_COUNT = 12, 12  # both differ much in how well they are drafted
TOKENS, CONTEXT = 48, 4096  # of an answer; of prompt and answer, longer ones are left out


@dataclass
class Answer:
    """One lane's passes over one prompt, added up."""

    ids: list[int] = field(default_factory=list)
    seconds: float = 0.0
    tokens: int = 0

    def add(self, step: Step) -> None:
        """One more pass."""
        self.ids += step.ids
        self.seconds += step.seconds
        self.tokens += step.tokens


@dataclass
class Figures:
    """Answers by category and prompt: lane -> answer."""

    races: dict[tuple[str, int], dict[str, Answer]] = field(default_factory=dict)

    def rate(self, category: str, lane: str) -> float:
        """Tokens per second over all prompts of a category."""
        own = [answers[lane] for (name, _), answers in self.races.items() if name == category]
        seconds = sum(answer.seconds for answer in own)
        return sum(answer.tokens for answer in own) / seconds if seconds else 0.0

    def ratio(self, category: str, lane: str, other: str) -> float:
        """Of two lanes' tokens per second."""
        theirs = self.rate(category, other)
        return self.rate(category, lane) / theirs if theirs else 0.0

    def same(self, lane: str, other: str) -> int:
        """Prompts to which both lanes gave the same tokens."""
        return sum(answers[lane].ids == answers[other].ids for answers in self.races.values())

    def categories(self) -> list[str]:
        """In the order in which they ran."""
        return list(dict.fromkeys(category for category, _ in self.races))


@dataclass(frozen=True, slots=True)
class _Ours:
    """An engine with one of its drafters."""

    engine: Engine
    drafter: str

    def steps(self, question: Question, most: int, stops: frozenset[int]) -> Iterator[Step]:
        """Whole steps of the engine; those that read the prompt give no events."""
        request = GenerationRequest(
            question.ids, most, stop_tokens=stops, drafter=self.drafter, task=question.task
        )
        number = self.engine.submit(request)
        while self.engine.busy:
            started = time.perf_counter()
            events = [event for _, event in self.engine.step()]
            seconds = time.perf_counter() - started
            ids = tuple(i for event in events if isinstance(event, Tokens) for i in event.ids)
            end = next((event for event in events if isinstance(event, Done)), None)
            if end is not None and end.reason is FinishReason.ERROR:
                raise RequestFailed(f"request {number} broke: {end.error}")
            if events:
                stopped = end is not None and end.reason is FinishReason.STOP
                yield Step(ids, seconds, len(ids) + stopped)


def race(lanes: Mapping[str, Iterator[Step]]) -> dict[str, Answer]:
    """Every lane's answer."""
    answers = {lane: Answer() for lane in lanes}
    for lane, step in take_turns(lanes):
        answers[lane].add(step)
    return answers


def categories(prompts: PromptSet) -> list[Category]:
    """Text chores, word problems, and open questions by kind."""
    return [
        (CHORES, prompts.edits[FIRST : FIRST + CHORE_COUNT]),
        (PROBLEMS, prompts.problems[FIRST : FIRST + PROBLEM_COUNT]),
        *prompts.open,
    ]


def measure_file(
    spec: ModelSpec, file: Path, prompts: PromptSet, progress: Callable[[str], None]
) -> Figures:
    """Own lanes and llama-cpp-python's on one file; raises RequestFailed.

    Every lane has a copy of the weights, unless they are read in place, and the copy that was made
    first may be the slowest: of four of the same 4-bit file, passes over the first took up to 6 %
    longer than over the last. So all are loaded twice, in opposite orders, and each time every
    other prompt of a kind is asked.
    """
    text = ChatText.load(Path(spec.folder))
    own = replace(
        spec, folder=str(file), backend="llama_cpp", slots=1, exit_layer=None,
        acceptance_head=None, threads=os.cpu_count(), context=CONTEXT,
    )  # fmt: skip
    figures = Figures()
    for half, order in enumerate((LANES, LANES[::-1])):
        progress(f"loading {file.name}")
        lanes = _loaded(own, file, order)
        gc.collect()
        gc.freeze()  # as the engine's process does once a model is loaded
        try:
            progress(f"{file.name}: warming up")
            _warm_up(lanes, [_question(text, turns) for turns in _first(prompts)], text.stop_tokens)
            for category, number, asked in _asked(text, categories(prompts), half):
                progress(f"{file.name}: {category}")
                found = race({n: lanes[n].steps(asked, TOKENS, text.stop_tokens) for n in LANES})
                figures.races[category, number] = found
        finally:
            gc.unfreeze()
            _release(lanes)
    return figures


def _loaded(own: ModelSpec, file: Path, order: Sequence[str]) -> dict[str, Runner]:
    """The lanes, their copies of the weights made in this order."""
    makers: dict[str, Callable[[], Runner]] = {
        OURS: lambda: _Ours(build(replace(own, draft_folder=None)), "none"),
        AUTO: lambda: _Ours(build(own), "auto"),
        PLAIN: lambda: Rival(file, CONTEXT, lookup=False),
        LOOKUP: lambda: Rival(file, CONTEXT, lookup=True),
    }
    return {name: makers[name]() for name in order}


def _release(lanes: dict[str, Runner]) -> None:
    """Give all their memory back."""
    for lane in lanes.values():
        if isinstance(lane, Rival):
            lane.close()
    lanes.clear()
    gc.collect()  # an engine and its target hold each other


def _first(prompts: PromptSet) -> list[Turns]:
    """Word problems and chores by turns."""
    pairs = zip_longest(prompts.problems[:FIRST], prompts.edits[:FIRST])
    return [turns for turns in chain.from_iterable(pairs) if turns is not None]


def _warm_up(
    lanes: Mapping[str, Runner], questions: Sequence[Question], stops: frozenset[int]
) -> None:
    """One answer from every lane; the one that learns gets the others, too."""
    for name, lane in lanes.items():
        for question in questions if name == AUTO else questions[:1]:
            race({name: lane.steps(question, TOKENS, stops)})


def _asked(
    text: ChatText, groups: Sequence[Category], half: int
) -> Iterator[tuple[str, int, Question]]:
    """(category, number, question) of every other first turn of a kind, as far as they fit."""
    number = 0
    for category, group in groups:
        for place, turns in enumerate(group):
            number += 1
            question = _question(text, turns)
            if place % 2 == half and len(question.ids) + TOKENS < CONTEXT:
                yield category, number, question


def _question(text: ChatText, turns: Turns) -> Question:
    """The first turn as the app asks it."""
    messages = [Message("user", turns[0])]
    return Question(tuple(text.encode_chat(messages)), task_class(messages))
