"""Which class a turn gets: a table of prompts, and the laws that any text keeps."""

import json
import time
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.history.task_class import (
    HEAD,
    TAIL,
    TaskClass,
    TemperatureClass,
    task_class,
    temperature_class,
)
from app.request import Message
from engine.request import SamplingParams

DATA = Path(__file__).parents[2] / "data"
LOOKED_AT = HEAD + TAIL  # characters
CODE, MATHS, EDIT, CHAT = TaskClass.CODE, TaskClass.MATHS, TaskClass.EDIT, TaskClass.CHAT

ARTICLE = (
    "The council voted on Tuesday to close the old bridge for eleven months. Traffic will be led over "
    "the ring road, and the number 4 bus will turn around at the harbour. Shop owners fear for their "
    "sales; the mayor promised help, but named no sum. Work begins after the spring fair. "
)
FUNCTION = "def mean(values):\n    total = sum(values)\n    return total / len(values)\n"

PROMPTS = [
    # writing, roleplay, humanities, STEM, reasoning: new text
    (CHAT, "Compose an engaging travel blog post about a recent trip to Hawaii."),
    (CHAT, "Draft a professional email seeking your supervisor's feedback on the quarterly report."),
    (CHAT, "Imagine you are writing a blog post comparing two popular smartphone models."),
    (CHAT, "Write a persuasive email to convince your introverted friend to speak at an event."),
    (CHAT, "Describe a vivid and unique character, using strong imagery and creative language."),
    (CHAT, "Pretend yourself to be Elon Musk in all the following conversations."),
    (CHAT, "What is quantum superposition, and how does it differ from entanglement?"),
    (CHAT, "Provide insights into the correlation between GDP, inflation and unemployment."),
    (CHAT, "Imagine you are in a race. If you have just overtaken the second person, where are you?"),
    (CHAT, "Who is older, if David is the father of Ann and Ann is the mother of Tim?"),
    (CHAT, "Hello! Can you help me plan my weekend?"),
    (CHAT, "hi"),
    (CHAT, "What should I cook tonight? I have rice, eggs and some old carrots."),
    (CHAT, "When did the Berlin wall fall?"),
    (CHAT, "Explain the plot of Hamlet in a few words."),
    (CHAT, "Summarize the main ideas of Jeremy Rifkin."),
    (CHAT, "Translate German to English: Das Wetter ist heute sehr schön und wir gehen baden."),
    (CHAT, "My car's bonnet shows rust. What can I do about it?"),
    (CHAT, "Is Java a nice island for a holiday in July?"),
    (CHAT, "Write a haiku about autumn leaves."),
    (CHAT, "How do I change a tyre?"),
    (CHAT, "What is the function of the liver?"),
    (CHAT, "Write a cover letter for a job as a nurse."),
    # code
    (CODE, "Develop a Python program that reads all the text files under a directory."),
    (CODE, "Write a C++ program to find the nth Fibonacci number using recursion."),
    (CODE, "Write a function to find the highest common ancestor (not LCA) of two nodes in a tree."),
    (CODE, "Implement a regular expression in Python to validate an email address."),
    (CODE, "Write a simple website in HTML. When a user clicks the button, it shows a joke."),
    (CODE, "How do I reverse a string in Rust?"),
    (CODE, "why do I get TypeError: unhashable type: 'list' when I use a dict as a set?"),
    (CODE, f"What does this do?\n```python\n{FUNCTION}```"),
    (CODE, f"{FUNCTION}\nFind the bug in it."),
    (CODE, "SQL query that returns the three newest orders of each customer"),
    (CODE, "What's wrong with my code? for i in range(10) print(i)"),
    (CODE, "Given a sorted array, implement binary search."),
    (CODE, "Explain what this line means: const total = items.reduce((a, b) => a + b, 0);"),
    (CODE, "Complete this:\n\nimport os\n\ndef newest_file(folder):"),
    # maths
    (MATHS, "What is 17 + 25?"),
    (MATHS, "The vertices of a triangle are at points (0, 0), (-1, 1), and (3, 3). What is its area?"),
    (MATHS, "When n is divided by 10, the remainder is 4. What is the remainder of twice n?"),
    (MATHS, "At the first bus stop, half of the people got off and 4 got on. How many are left?"),
    (MATHS, "x+y = 4z, x*y = 4z^2, express x-y in z"),
    (MATHS, "Given that f(x) = 4x^3 - 9x - 14, find the value of f(2)."),
    (MATHS, "Prove that the square root of 2 is irrational."),
    (MATHS, "Solve for t: 3t + 5 = 20"),
    (MATHS, "How much is 15 percent of 80 euros?"),
    (MATHS, "A shirt costs $40 and is reduced by 25%. What's the new price?"),
    (MATHS, r"Evaluate \int_0^1 x^2 dx."),
    (MATHS, "A train leaves at 9:40 and arrives at 13:05. How long is the journey?"),
    # a text in the prompt, most of which comes back
    (EDIT, f"Summarize: {ARTICLE}"),
    (EDIT, f"{ARTICLE}\n\nSummarise the article above in two sentences."),
    (EDIT, f"TL;DR please\n\n{ARTICLE * 4}"),
    (EDIT, f"{ARTICLE * 10}\nPlease shorten this to a paragraph."),
    (EDIT, f"Rename the variable total to s:\n{FUNCTION}"),
    (EDIT, f"Please replace values by numbers in this function.\n{FUNCTION}"),
    (EDIT, "Correct the grammar: she dont likes apples and me neither"),
    (EDIT, "Can you proofread this? \"I has went to the shop yesterday and buyed bread.\""),
    (EDIT, "Turn this into a JSON list: red, green, blue"),
    (EDIT, "Extract all names from the text: Anna met Bob while Clara was in Rome."),
    (EDIT, f"Which sentence mentions the mayor? Quote it.\n{ARTICLE}"),
    (EDIT, "Make this email more formal:\n\nhey bob, cant come tmrw, sry. anna"),
    (EDIT, f"Add docstrings to this function, change nothing else:\n{FUNCTION}"),
    (EDIT, "Convert this to a markdown table:\nname,age\nTom,4\nEva,7"),
    (EDIT, "Given the following reviews, return the ratings as JSON.\n1. Great film, 9/10\n2. Dull, 3/10"),
    (EDIT, "Sort these lines alphabetically:\npear\napple\nfig"),
    (EDIT, "Rewrite this sentence in the passive voice: The dog bit the man."),
    (EDIT, "Repeat after me: the quick brown fox jumps over the lazy dog"),
]  # fmt: skip


def said(*contents: str) -> list[Message]:
    """A conversation that begins and ends with the user."""
    return [Message(("user", "assistant")[at % 2], text) for at, text in enumerate(contents)]


CONVERSATIONS = [
    (CODE, said("Reverse a string in Python", f"```python\n{FUNCTION}```", "And for lists?")),
    (CHAT, said("Reverse a string in Python", f"```python\n{FUNCTION}```", "Thanks!")),
    (MATHS, said("What is 3 * 4?", "3 * 4 = 12", "And doubled?")),
    (EDIT, said("Write a letter to my landlord", f"Dear Sir, {ARTICLE}", "Make it shorter.")),
    (EDIT, said("Tell me about Rome", ARTICLE, "Summarize your answer in one sentence.")),
    (EDIT, said("Tell me about Rome", ARTICLE, "Rewrite your previous response as a poem.")),
    (CHAT, said("Tell me about Rome", ARTICLE, "And Paris?")),
    (MATHS, said("Write a poem", "Roses are red", "Now: what is 12 * 12?")),
    (CHAT, said("What is 3 * 4?", "3 * 4 = 12", "Good. Tell me a story about a fox that cannot count, "
                "a long one, with a hedgehog who can and a happy ending that teaches something.")),
]  # fmt: skip


@pytest.mark.parametrize(("expected", "prompt"), PROMPTS)
def test_a_prompt_alone(expected, prompt):
    assert task_class([Message("user", prompt)]) is expected


@pytest.mark.parametrize(("expected", "messages"), CONVERSATIONS)
def test_the_last_message_in_the_light_of_the_others(expected, messages):
    assert task_class(messages) is expected


@pytest.mark.parametrize(
    ("file", "maths"),
    [("word_problems", {None}), ("chores", {"sum", "convert"}), ("edit_chores", set())],
)
def test_nearly_every_held_out_prompt(file, maths):
    lines = (DATA / f"{file}.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    right = 0
    for row in rows:
        expected = MATHS if row.get("kind") in maths else EDIT
        right += task_class([Message("user", row["turns"][0])]) is expected
    assert right >= 0.95 * len(rows) > 0


def test_a_system_prompt_does_not_count():
    messages = [Message("system", f"Summarize:\n{ARTICLE}"), Message("user", "hello")]
    assert task_class(messages) is CHAT
    assert task_class(messages[:1]) is CHAT
    assert task_class([]) is CHAT


@given(st.lists(st.builds(Message, st.sampled_from(["user", "assistant"]), st.text())))
def test_any_conversation_has_one_class_always_the_same(messages):
    assert task_class(messages) is task_class(list(messages))


@pytest.mark.parametrize(
    "word", ["change ", "write ", "1 ", "in python ", "(((\n", "what is ", "aa"]
)
def test_a_long_text_takes_no_longer(word):
    """A look at every character would take 19 times as long, and backtracking more than twice.

    A machine's speed changes from one moment to the next, so each text is compared with the one
    timed just before it, and the median of many such pairs counts.
    """

    def seconds(characters: int) -> float:
        messages = [Message("user", (word * characters)[:characters])]
        started = time.thread_time()
        task_class(messages)
        return time.thread_time() - started

    sizes = (LOOKED_AT // 2, LOOKED_AT, 20 * LOOKED_AT)
    times = [[seconds(size) for size in sizes] for _ in range(51)]
    assert median(whole / half for half, whole, _ in times) < 3.5
    assert median(long / whole for _, whole, long in times) < 2


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (SamplingParams(), TemperatureClass.GREEDY),
        (SamplingParams(seed=7), TemperatureClass.GREEDY),
        (SamplingParams(temperature=0.1), TemperatureClass.COOL),
        (SamplingParams(temperature=0.8), TemperatureClass.COOL),
        (SamplingParams(temperature=0.8, seed=0), TemperatureClass.COOL_SEEDED),
        (SamplingParams(temperature=0.81), TemperatureClass.HOT),
        (SamplingParams(temperature=1.0, seed=7), TemperatureClass.HOT_SEEDED),
    ],
)
def test_temperatures(sampling, expected):
    assert temperature_class(sampling) is expected
