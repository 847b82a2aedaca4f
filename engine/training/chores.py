"""Text chores with answers that are right by construction; what the pocket models are good at."""

import json
import keyword
import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from engine.training.passages import Passages


@dataclass(frozen=True, slots=True)
class Chore:
    """One task: its kind, what a person would type, the only right answer."""

    kind: str
    prompt: str
    answer: str


_NAMES = (
    "Anna", "Ben", "Carla", "David", "Emma", "Felix", "Grace", "Hugo", "Ida", "Jack", "Kate",
    "Leo", "Maria", "Noah", "Olga", "Paul", "Rosa", "Sam", "Tina", "Victor", "Wendy", "Tom",
    "Alice", "Bob", "Clara", "Daniel", "Eva", "Frank", "Helen", "Ivan", "Julia", "Karl", "Lisa",
    "Mark", "Nina", "Oscar", "Peter", "Sara", "Tim", "Zoe",
)  # fmt: skip
_CITIES = (
    "Oslo", "Paris", "Rome", "Berlin", "Madrid", "London", "Vienna", "Lisbon", "Dublin", "Prague",
    "Athens", "Tokyo", "Boston", "Chicago", "Denver", "Sydney", "Cairo", "Lima", "Delhi", "Seoul",
)  # fmt: skip
_JOBS = (
    "baker", "nurse", "teacher", "farmer", "driver", "painter", "doctor", "lawyer", "writer",
    "singer", "waiter", "tailor", "pilot", "dentist", "plumber", "gardener",
)  # fmt: skip
_NOUNS = (
    "apple", "banana", "bear", "bread", "butter", "camel", "carrot", "cat", "chair", "cheese",
    "cherry", "clock", "cow", "cup", "dog", "door", "duck", "egg", "fish", "flower", "fork", "fox",
    "garlic", "goat", "grape", "hat", "honey", "horse", "jacket", "kiwi", "lamp", "lemon", "lion",
    "mango", "milk", "mouse", "nut", "onion", "orange", "owl", "paper", "pear", "pen", "pencil",
    "pig", "plum", "potato", "rabbit", "rice", "ring", "salt", "shoe", "soap", "spoon", "sugar",
    "table", "tea", "tiger", "tomato", "train", "tree", "wolf", "zebra",
)  # fmt: skip
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_VARIABLES = (
    "total", "count", "result", "value", "items", "index", "data", "name", "size", "key", "text",
    "node", "line", "first", "last", "limit", "score", "price", "number", "buffer", "row", "path",
    "left", "right", "current", "answer", "output", "source", "target", "words",
)  # fmt: skip


def _text(rng: Random, p: Passages, low: int, high: int) -> str:
    """``low`` to ``high`` sentences, running or one per line."""
    count = rng.randint(low, high)
    return rng.choice((" ", " ", "\n")).join(rng.sample(p.sentences, count))


def _list(rng: Random, p: Passages, low: int, high: int) -> list[str]:
    pool = _NOUNS if rng.random() < 0.6 else rng.choice((_NAMES, _CITIES, p.words))
    return rng.sample(pool, rng.randint(low, high))


def _copyable(rng: Random, p: Passages) -> str:
    kind = rng.random()
    if kind < 0.5:
        return _text(rng, p, 1, 4)
    if kind < 0.75:
        return rng.choice(p.snippets)
    return " ".join(rng.choices(p.words, k=rng.randint(5, 30)))


def repeat(rng: Random, p: Passages) -> Chore:
    """Copy a text word for word."""
    frame = rng.choice(
        ("Repeat this text exactly:\n{}", "Copy this text:\n{}", "Repeat after me: {}",
         "Write this again:\n{}", "Repeat:\n{}", "Say this word for word: {}")
    )  # fmt: skip
    text = _copyable(rng, p)
    return Chore("repeat", frame.format(text), text)


def quote(rng: Random, p: Passages) -> Chore:
    """Quote the one sentence that mentions a word."""
    sentences = rng.sample(p.sentences, rng.randint(2, 5))
    chosen = rng.choice(sentences)
    others = " ".join(s for s in sentences if s != chosen)
    words = [w for w in re.findall(r"[A-Za-z]{4,}", chosen) if w.lower() not in others.lower()]
    if not words:
        return quote(rng, p)
    frame = rng.choice(
        ("Quote the sentence that mentions {}:\n{}", "Which sentence mentions {}? Quote it.\n{}",
         "Find the sentence with the word {}:\n{}")
    )  # fmt: skip
    return Chore("quote", frame.format(rng.choice(words), " ".join(sentences)), f'"{chosen}"')


def replace(rng: Random, p: Passages) -> Chore:
    """Replace one word by another in a text."""
    text = _text(rng, p, 1, 3)
    old = rng.choice(sorted(set(re.findall(r"\b[A-Za-z]{3,}\b", text))))
    pool = _NAMES if old[0].isupper() else rng.choice((_NOUNS, p.words))
    new = rng.choice([word for word in pool if word != old])
    frame = rng.choice(
        ("Replace {} with {} in this text:\n{}", "Change the word {} to {}:\n{}",
         "Rewrite this text with {} replaced by {}:\n{}")
    )  # fmt: skip
    return Chore("replace", frame.format(old, new, text), re.sub(rf"\b{old}\b", new, text))


def rename(rng: Random, p: Passages) -> Chore:
    """Rename a variable in a short Python function."""
    code = rng.choice(p.snippets)
    names = [
        n
        for n in set(re.findall(r"(?<![.\w'\"])[a-z_]{2,}\b(?!['\"(=]| =\w)", code))
        if not keyword.iskeyword(n) and n not in {"self", "None", "print", "len", "int", "str"}
    ]
    if not names:
        return rename(rng, p)
    old = rng.choice(sorted(names))
    new = rng.choice([v for v in _VARIABLES if v not in code])
    frame = rng.choice(
        ("Rename the variable {} to {}:\n{}", "Rename {} to {} in this code:\n{}",
         "Change the variable name {} to {}:\n{}")
    )  # fmt: skip
    return Chore("rename", frame.format(old, new, code), re.sub(rf"\b{old}\b", new, code))


def _person(rng: Random) -> dict[str, str | int]:
    return {
        "name": rng.choice(_NAMES),
        "age": rng.randint(18, 90),
        "city": rng.choice(_CITIES),
        "job": rng.choice(_JOBS),
    }


def _describe(rng: Random, who: dict[str, str | int]) -> str:
    frame = rng.choice(
        ("{name} is {age} years old, lives in {city} and works as a {job}.",
         "{name}, {age}, is a {job} from {city}.",
         "The {job} {name} is {age} and lives in {city}.",
         "In {city} lives {name}, a {job} of {age} years.",
         "My friend {name} is a {job} in {city}. {name} is {age}.")
    )  # fmt: skip
    return frame.format(**who)


def extract(rng: Random, _: Passages) -> Chore:
    """Extract fields of one to three people as JSON."""
    fields = rng.sample(("name", "age", "city", "job"), rng.randint(2, 4))
    people = [_person(rng) for _ in range(rng.choice((1, 1, 2, 3)))]
    text = " ".join(_describe(rng, who) for who in people)
    rows = [{f: who[f] for f in fields} for who in people]
    wanted = ", ".join(fields[:-1]) + " and " + fields[-1]
    frame = rng.choice(
        ("Extract the {} as JSON:\n{}", "Give me the {} as JSON:\n{}", "Return {} in JSON.\n{}")
    )  # fmt: skip
    answer = json.dumps(rows[0]) if len(rows) == 1 else "\n".join(json.dumps(r) for r in rows)
    return Chore("extract", frame.format(wanted, text), answer)


def sort(rng: Random, _: Passages) -> Chore:
    """Sort a few words alphabetically or numbers by size."""
    if rng.random() < 0.5:
        numbers = rng.sample(range(1, 100), rng.randint(3, 5))
        down = rng.random() < 0.3
        frame = "Sort these numbers from {}: {}"
        order = "largest to smallest" if down else "smallest to largest"
        prompt = frame.format(order, ", ".join(map(str, numbers)))
        return Chore("sort", prompt, ", ".join(map(str, sorted(numbers, reverse=down))))
    words = rng.sample(rng.choice((_NOUNS, _NAMES, _CITIES)), rng.randint(3, 5))
    frame = rng.choice(("Sort these words: {}", "Put these words in alphabetical order: {}"))
    return Chore("sort", frame.format(", ".join(words)), ", ".join(sorted(words)))


def reformat(rng: Random, p: Passages) -> Chore:
    """Change the layout of a list, a table row or a date."""
    kind = rng.randrange(6)
    items = _list(rng, p, 3, 9)
    row = ", ".join(items)
    bullets = "\n".join(f"- {i}" for i in items)
    numbered = "\n".join(f"{n}. {i}" for n, i in enumerate(items, 1))
    if kind == 5:
        year, month, day = rng.randint(1950, 2030), rng.randint(1, 12), rng.randint(1, 28)
        written = f"{day} {_MONTHS[month - 1]} {year}"
        return Chore("reformat", f"Write the date {year}-{month:02}-{day:02} in words.", written)
    frame, source, answer = (
        ("Turn this list into bullet points: {}", row, bullets),
        ("Make a numbered list: {}", row, numbered),
        ("Write these bullet points on one line, separated by commas:\n{}", bullets, row),
        ("Turn this list into a JSON array: {}", row, json.dumps(items)),
        ("Write each item on a new line: {}", row, "\n".join(items)),
    )[kind]
    return Chore("reformat", frame.format(source), answer)


_UNITS = (
    ("kilometers", "meters", 1000), ("meters", "centimeters", 100), ("kilograms", "grams", 1000),
    ("hours", "minutes", 60), ("minutes", "seconds", 60), ("days", "hours", 24), ("weeks", "days", 7),
    ("years", "months", 12), ("dozens", "pieces", 12), ("feet", "inches", 12),
    ("liters", "milliliters", 1000), ("dollars", "cents", 100), ("tons", "kilograms", 1000),
)  # fmt: skip


def convert(rng: Random, _: Passages) -> Chore:
    """Convert a quantity to a smaller unit."""
    large, small, factor = rng.choice(_UNITS)
    n = rng.randint(2, 99 if factor in {100, 1000} else 12)
    frame = rng.choice(
        ("How many {small} are {n} {large}?", "Convert {n} {large} to {small}.",
         "What are {n} {large} in {small}?", "{n} {large} in {small}?",
         "Please convert {n} {large} into {small}.", "How many {small} are there in {n} {large}?")
    )  # fmt: skip
    prompt = frame.format(n=n, large=large, small=small)
    return Chore("convert", prompt, f"{n} {large} are {n * factor} {small}.")


def add_up(rng: Random, _: Passages) -> Chore:
    """A small sum, difference or product."""
    sign = rng.choice("++--*")
    if sign == "*":
        a, b = rng.randint(2, 12), rng.randint(2, 12)
        result, word = a * b, "times"
    elif sign == "+":
        a, b = rng.randint(1, 99), rng.randint(1, 99)
        result, word = a + b, "plus"
    else:
        a, b = sorted((rng.randint(1, 99), rng.randint(1, 99)), reverse=True)
        result, word = a - b, "minus"
    frame = rng.choice(
        ("What is {a} {s} {b}?", "{a} {s} {b}", "Calculate {a} {s} {b}.", "What is {a} {w} {b}?",
         "How much is {a} {w} {b}?", "{a} {s} {b} = ?")
    )  # fmt: skip
    return Chore("sum", frame.format(a=a, b=b, s=sign, w=word), f"{a} {sign} {b} = {result}")


CHORES: dict[str, Callable[[Random, Passages], Chore]] = {
    "repeat": repeat,
    "quote": quote,
    "replace": replace,
    "rename": rename,
    "extract": extract,
    "sort": sort,
    "reformat": reformat,
    "convert": convert,
    "sum": add_up,
}


# Short chores carry few answer tokens, so they must come more often to be learnt at all.
FREQUENCY = {
    "repeat": 2.5, "quote": 6.0, "replace": 1.5, "rename": 2.0, "extract": 0.5, "sort": 2.0,
    "reformat": 1.5, "convert": 1.0, "sum": 6.0,
}  # fmt: skip


def draw_chore(rng: Random, passages: Passages) -> Chore:
    """A chore of a random kind."""
    kind = rng.choices(tuple(FREQUENCY), tuple(FREQUENCY.values()))[0]
    return CHORES[kind](rng, passages)


def is_held_out(prompt: str) -> bool:
    """Whether a prompt belongs to the tenth that training never sees (by a stable hash)."""
    return sum(prompt.encode()) % 10 == 0
