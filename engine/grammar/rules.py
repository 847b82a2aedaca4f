"""Grammar rules over bytes; frozen values, safe to pickle."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import islice

from engine.errors import InvalidRequest

MOST_PARTS, MOST_REPEATS = 20_000, 10_000
MOST_COUNTED = 100_000  # positions in nested repetitions, which a text may be at all at once
ROOT = "root"


@dataclass(frozen=True, slots=True)
class Bytes:
    """One byte in one of the inclusive ranges."""

    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Text:
    """Exactly these bytes; may be empty."""

    value: bytes


@dataclass(frozen=True, slots=True)
class Row:
    """A sequence of rules."""

    parts: "tuple[Rule, ...]"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the rules."""

    options: "tuple[Rule, ...]"


@dataclass(frozen=True, slots=True)
class Repeat:
    """A rule repeated ``least`` to ``most`` times; None: no limit."""

    rule: "Rule"
    least: int = 0
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Named:
    """A reference to a rule of the grammar; allows recursion."""

    name: str


Rule = Bytes | Text | Row | Choice | Repeat | Named
_Predicate = Callable[[Rule], bool]


@dataclass(frozen=True)
class Grammar:
    """Rules by name. Call ``check`` after creating one: every state must lead to an end."""

    rules: tuple[tuple[str, Rule], ...]
    root: str = ROOT

    @cached_property
    def named(self) -> dict[str, Rule]:
        """The rules by name."""
        return dict(self.rules)

    def parts(self) -> Iterator[Rule]:
        """Every rule and its parts, recursively."""
        for _, rule in self.rules:
            yield from _parts(rule)

    def check(self) -> None:
        """Raise InvalidRequest for a grammar that no answer can satisfy."""
        parts = list(islice(self.parts(), MOST_PARTS + 1))
        if len(parts) > MOST_PARTS:
            raise InvalidRequest(f"the grammar has more than {MOST_PARTS} parts; make it smaller")
        if self.root not in self.named:
            raise InvalidRequest(f"the grammar has no rule {self.root!r}")
        for part in parts:
            self._check_part(part)
        ending = self._settled(_ends)
        if lost := [name for name in self.named if name not in ending]:
            raise InvalidRequest(
                f"the grammar's rule {lost[0]!r} never ends; give it an alternative without recursion"
            )
        empty = self._settled(_is_empty)
        begins = {name: set(self._firsts(rule, empty)) for name, rule in self.rules}
        try:
            TopologicalSorter(begins).prepare()
        except CycleError as error:
            name = error.args[1][0]
            raise InvalidRequest(f"the grammar's rule {name!r} begins with itself") from error

    def _check_part(self, part: Rule) -> None:
        match part:
            case Named(name) if name not in self.named:
                raise InvalidRequest(f"the grammar has no rule {name!r}")
            case Choice(()) | Bytes(()):
                raise InvalidRequest("the grammar has an empty choice")
            case Repeat(_, least, most):
                largest = least if most is None else most
                if not 0 <= least <= largest <= MOST_REPEATS:
                    raise InvalidRequest(
                        f"the grammar repeats {least} to {most} times; choose 0 to {MOST_REPEATS}, "
                        "the smaller first"
                    )
                if (counted := _counted(part)) > MOST_COUNTED:
                    raise InvalidRequest(
                        f"the grammar has nested repetitions, {counted} times in all; at most "
                        f"{MOST_COUNTED} are supported"
                    )
            case _:
                pass

    def _settled(self, leaf: _Predicate) -> set[str]:
        """Names of rules with a property; ``leaf`` decides it for rules without parts."""
        found: set[str] = set()
        before = -1
        while before < len(found):
            before = len(found)
            for name, rule in reversed(self.rules):  # parts come after the rules made of them
                if name not in found and _holds(rule, found, leaf):
                    found.add(name)
        return found

    def _firsts(self, rule: Rule, empty: set[str]) -> Iterator[str]:
        """Names of rules that the rule may begin with."""
        match rule:
            case Named(name):
                yield name
            case Choice(options):
                for option in options:
                    yield from self._firsts(option, empty)
            case Repeat(inner, _, _):
                yield from self._firsts(inner, empty)
            case Row(parts):
                for part in parts:
                    yield from self._firsts(part, empty)
                    if not _holds(part, empty, _is_empty):
                        return
            case _:
                return


def _parts(rule: Rule) -> Iterator[Rule]:
    """The rule and its parts, recursively."""
    yield rule
    match rule:
        case Row(inner) | Choice(inner):
            for part in inner:
                yield from _parts(part)
        case Repeat(repeated, _, _):
            yield from _parts(repeated)
        case _:
            return


def _counted(rule: Rule) -> int:
    """The number of positions in nested repetitions."""
    match rule:
        case Row(inner) | Choice(inner):
            return max(map(_counted, inner), default=1)
        case Repeat(inner, least, most):
            return max(1, least if most is None else most) * _counted(inner)
        case _:
            return 1


def _holds(rule: Rule, names: set[str], leaf: _Predicate) -> bool:
    """Whether the rule can be satisfied with ``names`` and rules for which ``leaf`` is true only."""
    match rule:
        case Row(parts):
            return all(_holds(part, names, leaf) for part in parts)
        case Choice(options):
            return any(_holds(option, names, leaf) for option in options)
        case Repeat(inner, least, _):
            return least == 0 or _holds(inner, names, leaf)
        case Named(name):
            return name in names
        case _:
            return leaf(rule)


def _ends(_: Rule) -> bool:
    """Bytes always end."""
    return True


def _is_empty(rule: Rule) -> bool:
    """Whether the rule matches no bytes."""
    return isinstance(rule, Text) and not rule.value
