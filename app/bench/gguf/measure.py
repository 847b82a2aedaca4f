"""What ``bench gguf`` runs: own lanes and llama-cpp-python's in one process, by turns at every pass.

What a session learns on its first questions is not counted.
"""

import gc
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from pathlib import Path

from app.bench.gguf.rivals import LOOKUP, PLAIN, LlamaCppRunner
from app.bench.lanes import Lane
from app.bench.measure import Order, Prompt, Prompts, Runner, Sample, finished, measure
from app.bench.options import Conditions
from app.bench.prompt_files import Category, PromptSet, Turns
from app.bench.runners import Clock, EngineRunner, base_request, frozen_heap
from app.bench.summary import rate_of
from app.history.task_class import task_class
from app.request import Message
from app.text.chat_text import ChatText
from engine.build import build
from engine.request import GenerationRequest, ModelSpec

OURS, AUTO = "plain", "auto"
LANES = (Lane(OURS, "none"), Lane(AUTO, "auto"), Lane(PLAIN, PLAIN), Lane(LOOKUP, LOOKUP))
CHORES, PROBLEMS = "text chores", "GSM8K"
FIRST = 3  # questions and chores at the start of a session
CHORE_COUNT, PROBLEM_COUNT = 12, 12  # both differ much in how well they are drafted
TOKENS, CONTEXT = 48, 4096  # of an answer; of prompt and answer, longer ones are left out


@dataclass
class Figures:
    """Samples of all lanes, and the category of every prompt."""

    samples: list[Sample] = field(default_factory=list)
    categories: dict[int, str] = field(default_factory=dict)  # by prompt

    def rate(self, category: str, lane: str) -> float:
        """Tokens per second over all prompts of a category."""
        own = (s for s in self.samples if s.lane == lane)
        return rate_of(s for s in own if self.categories[s.prompt] == category)

    def ratio(self, category: str, lane: str, other: str) -> float:
        """Of two lanes' tokens per second."""
        theirs = self.rate(category, other)
        return self.rate(category, lane) / theirs if theirs else 0.0

    def same(self, lane: str, other: str) -> int:
        """Prompts to which both lanes gave the same tokens."""
        answers = {(s.lane, s.prompt): s.ids for s in self.samples}
        return sum(answers[lane, n] == answers[other, n] for n in self.categories)

    def names(self) -> list[str]:
        """The categories, in the order of their prompts."""
        return list(dict.fromkeys(self.categories[n] for n in sorted(self.categories)))


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
    request = base_request(_conditions(), text.stop_tokens)
    figures = Figures()
    for half, order in enumerate((LANES, LANES[::-1])):
        progress(f"loading {file.name}")
        runners = load_lanes(own, file, [lane.name for lane in order], request)
        with frozen_heap():
            progress(f"{file.name}: warming up")
            first, *others = _prompts(text, _first(prompts))
            _samples(LANES, [first], runners)
            _samples([lane for lane in LANES if lane.name == AUTO], others, runners)
            for category, asked in _asked(text, categories(prompts), half):
                progress(f"{file.name}: {category}")
                figures.samples += _samples(LANES, asked, runners)
                figures.categories |= {prompt.number: category for prompt in asked}
        _release(runners)
    return figures


def _conditions() -> Conditions:
    return Conditions(max_tokens=TOKENS, repeats=1, warm_up=False)


def _samples(
    lanes: Sequence[Lane], asked: Sequence[Prompt], runners: Mapping[str, Runner]
) -> tuple[Sample, ...]:
    prompts = Prompts([[prompt] for prompt in asked])
    return finished(measure(lanes, prompts, _conditions(), runners, order=Order.STEP)).samples


def load_lanes(
    own: ModelSpec, file: Path, order: Sequence[str], request: GenerationRequest
) -> dict[str, Runner]:
    """The lanes' runners, their copies of the weights made in this order."""
    makers: dict[str, Callable[[], Runner]] = {
        OURS: lambda: EngineRunner(build(replace(own, draft_folder=None)), request, Clock.STEPS),
        AUTO: lambda: EngineRunner(build(own), request, Clock.STEPS),
        PLAIN: lambda: LlamaCppRunner(file, CONTEXT, request, lookup=False),
        LOOKUP: lambda: LlamaCppRunner(file, CONTEXT, request, lookup=True),
    }
    return {name: makers[name]() for name in order}


def _release(runners: dict[str, Runner]) -> None:
    """Give all their memory back."""
    for runner in runners.values():
        if isinstance(runner, LlamaCppRunner):
            runner.close()
    runners.clear()
    gc.collect()  # an engine and its target hold each other


def _first(prompts: PromptSet) -> list[Turns]:
    """Word problems and chores by turns."""
    pairs = zip_longest(prompts.problems[:FIRST], prompts.edits[:FIRST])
    return [turns for turns in chain.from_iterable(pairs) if turns is not None]


def _asked(text: ChatText, groups: Sequence[Category], half: int) -> list[tuple[str, list[Prompt]]]:
    """Every other prompt of a category, as far as they fit; numbers run through all categories."""
    found, number = [], 1
    for category, group in groups:
        fits = [p for p in _prompts(text, group, number)[half::2] if len(p.ids) + TOKENS < CONTEXT]
        found.append((category, fits))
        number += len(group)
    return found


def _prompts(text: ChatText, group: Sequence[Turns], number: int = 1) -> list[Prompt]:
    """First turns as the app asks them."""
    found = []
    for place, turns in enumerate(group):
        messages = (Message("user", turns[0]),)
        ids = tuple(text.encode_chat(messages))
        found.append(Prompt(number + place, messages, ids, task_class(messages)))
    return found
