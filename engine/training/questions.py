"""Prompts without answers, for text that a model writes itself."""

from collections.abc import Sequence
from random import Random

from engine.training.chores import draw_chore, is_held_out
from engine.training.dialogues import small_talk, unknown
from engine.training.passages import Passages, Problem

_ABOUT_A_TEXT = (
    "Translate to English: {text}", "Translate this into French:\n{text}", "{text}\nSummarize this.",
    "Summarize the following article:\n\n{text}", "Write a story that begins with: {text}",
    "Imagine that you are {name}. {text} What do you say?", "Rewrite this as an email: {text}",
    "{text} Why?", "{text} What happens next?", "Explain this step by step: {text}",
    "Answer the question from the text.\n\nText: {text}\n\nQuestion: {other}\nAnswer:",
    "Read these and answer.\n1. {text}\n2. {other}\nWhich one is true?", "{text}", "{text} {other}",
    "Write a review of {name}'s idea: {text}", "Is this true? {text}", "Give three reasons: {text}",
    "Discuss the effects of this on society: {text}", "Pretend to be {name} and explain: {text}",
)  # fmt: skip
_ABOUT_CODE = (
    "Write a Python function that does this: {text}", "What does this code do?\n\n{code}",
    "Fix the bug in this code:\n{code}", "Implement a class in Python for: {text}",
    "Write a test for:\n\n{code}\n", "Rewrite in C++:\n{code}",
)  # fmt: skip
_NAMES = ("a pirate", "a doctor", "Sherlock Holmes", "a teacher", "an engineer", "my neighbour")


class Questions:
    """Endless prompts: word problems without repetition, chores, small talk, open requests."""

    def __init__(self, problems: Sequence[Problem], passages: Passages, seed: int) -> None:
        self._rng = Random(seed)
        self._problems = self._rng.sample(list(problems), len(problems))
        self._passages = passages

    def draw(self) -> str:
        """The next prompt; half of them are word problems as long as there are new ones."""
        rng = self._rng
        kinds = {self.chore: 0.2, self._about_a_text: 0.22, self._about_code: 0.06,
                 self._talk: 0.02}  # fmt: skip
        if self._problems:
            kinds[self._problem] = 0.5
        return rng.choices(tuple(kinds), tuple(kinds.values()))[0]()

    def _problem(self) -> str:
        return self._problems.pop().question

    def chore(self) -> str:
        """A chore that is not held out."""
        while is_held_out(prompt := draw_chore(self._rng, self._passages).prompt):
            pass
        return prompt

    def _about_a_text(self) -> str:
        frame = self._rng.choice(_ABOUT_A_TEXT)
        count = self._rng.choice((1, 1, 2, 4, 12))
        text = " ".join(self._rng.choices(self._passages.sentences, k=count))
        other = self._rng.choice(self._passages.sentences)
        return frame.format(text=text, other=other, name=self._rng.choice(_NAMES))

    def _about_code(self) -> str:
        code = self._rng.choice(self._passages.snippets)
        text = self._rng.choice(self._passages.sentences)
        return self._rng.choice(_ABOUT_CODE).format(text=text, code=code)

    def _talk(self) -> str:
        draw = small_talk if self._rng.random() < 0.5 else unknown
        return draw(self._rng)[0]
