"""Rules over characters, written for llguidance, which reads a text in lexemes: each as long as it can be.

A grammar without recursion is one lexeme. In another one, lexemes are the largest parts without
recursion that may be read greedily: where one could continue, nothing that follows it begins so. Then
the longest reading is the only one, and the grammar has the texts that it has over characters.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from app.text.formats.lark import literal
from app.text.formats.pattern import character

MOST_STATES = 2000  # that are looked at before lexemes are split
Ranges = tuple[tuple[int, int], ...]  # of code points, inclusive


@dataclass(frozen=True, slots=True)
class Chars:
    """One character in one of the ranges."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Token:
    """One token of the model, in llguidance's notation."""

    name: str


@dataclass(frozen=True, slots=True)
class Named:
    """A reference to a rule."""

    name: str


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

    part: "Rule"
    least: int
    most: int | None


Rule = Chars | Token | Named | Row | Choice | Repeat


def written(rules: Mapping[str, Rule]) -> str:
    """The grammar of the rule ``root``."""
    return _Writer(rules).text()


def parts_of(rule: Rule) -> Iterator[Rule]:
    """The rule and its parts, recursively."""
    yield rule
    for inner in _inner(rule):
        yield from parts_of(inner)


def _inner(rule: Rule) -> tuple[Rule, ...]:
    match rule:
        case Row(inner) | Choice(inner):
            return inner
        case Repeat(repeated, _, _):
            return (repeated,)
        case _:
            return ()


class _Writer:
    """Decides which parts are lexemes, and writes all of them."""

    def __init__(self, rules: Mapping[str, Rule]) -> None:
        self._rules = rules
        self._regular = _without_recursion(rules)
        self._numbers = {name: number for number, name in enumerate(rules)}
        self._apart: set[Rule] = set()  # parts that are no lexemes
        self._names: dict[Rule, str] = {}  # of lexemes

    def text(self) -> str:
        reached, units = self._reached()
        while clashing := _Clashes(self._rules, reached, units).found():
            self._apart |= clashing
            reached, units = self._reached()
        self._names = {unit: f"L{number}" for number, unit in enumerate(units)}
        empty = _Clashes(self._rules, reached, units).empty
        lines = [f"start: {self._part(Named('root'), empty)}"]
        lines += [f"r{self._numbers[n]}: {self._part(self._rules[n], empty)}" for n in reached]
        for unit, name in self._names.items():
            some = " & /(?s:.+)/" if unit in empty else ""
            lines.append(f"{name}: ({self._plain(unit)}){some}")
        lines += [
            f"R{self._numbers[name]}: {self._plain(self._rules[name])}" for name in self._regular
        ]
        return "\n".join((*lines, ""))

    def _reached(self) -> tuple[list[str], list[Rule]]:
        """The names of rules that are none of lexemes, and the lexemes, from the root on."""
        names, units, ahead = dict[str, None](), dict[Rule, None](), list[Rule]([Named("root")])
        while ahead:
            rule = ahead.pop()
            if self._is_unit(rule):
                units[rule] = None
            elif isinstance(rule, Named):
                ahead += [] if rule.name in names else [self._rules[rule.name]]
                names[rule.name] = None
            else:
                ahead += _inner(rule)
        return [*names], [*units]

    def _is_unit(self, rule: Rule) -> bool:
        whole = rule not in self._apart and _is_regular(rule, self._regular)
        return whole and self._has_characters(rule)

    def _has_characters(self, rule: Rule) -> bool:
        """Whether a regular rule is more than nothing."""
        return any(
            self._has_characters(self._rules[part.name])
            if isinstance(part, Named)
            else isinstance(part, Chars)
            for part in parts_of(rule)
        )

    def _part(self, rule: Rule, empty: set[Rule]) -> str:
        """Outside of lexemes."""
        if rule in self._names:
            return f"{self._names[rule]}{'?' if rule in empty else ''}"
        match rule:
            case Token(name):
                return name
            case Named(name):
                return f"r{self._numbers[name]}"
            case _:
                return _joined(rule, [self._part(inner, empty) for inner in _inner(rule)])

    def _plain(self, rule: Rule) -> str:
        """Within a lexeme."""
        match rule:
            case Chars(ranges):
                listed = (f"{character(low)}-{character(high)}" for low, high in ranges)
                return f"/[{''.join(listed)}]/"
            case Named(name):
                return f"R{self._numbers[name]}"
            case Row(parts) if parts and all(_single(part) for part in parts):
                return literal("".join(map(_single, parts)))
            case _:
                return _joined(rule, [self._plain(inner) for inner in _inner(rule)])


def _single(rule: Rule) -> str:
    """The only character of a rule; empty for any other one."""
    match rule:
        case Chars(((low, high),)) if low == high:
            return chr(low)
        case _:
            return ""


def _joined(rule: Rule, inner: list[str]) -> str:
    match rule:
        case Choice(_):
            return f"({' | '.join(inner)})"
        case Repeat(_, least, most):
            return f"({inner[0]}){{{least},{'' if most is None else most}}}"
        case _:
            return f"({' '.join(inner)})" if inner else '""'


def _is_regular(rule: Rule, regular: Mapping[str, None]) -> bool:
    return all(
        part.name in regular if isinstance(part, Named) else not isinstance(part, Token)
        for part in parts_of(rule)
    )


def _without_recursion(rules: Mapping[str, Rule]) -> dict[str, None]:
    """The names of rules that are regular expressions, those that others need first."""
    found: dict[str, None] = {}
    before = -1
    while before < len(found):
        before = len(found)
        for name in [*rules, *reversed([*rules])]:
            if name not in found and _is_regular(rules[name], found):
                found[name] = None
    return found


@dataclass(slots=True)
class _Positions:
    """The places of characters in all lexemes, and which may follow which."""

    chars: list[Ranges] = field(default_factory=list)
    owners: list[Rule] = field(default_factory=list)
    after: list[set[int]] = field(default_factory=list)


class _Clashes:
    """Finds lexemes that continue where another reading of the text has their end."""

    def __init__(self, rules: Mapping[str, Rule], reached: list[str], units: list[Rule]) -> None:
        self._rules, self._reached = rules, reached
        self._places = _Positions()
        self._of = {unit: self._built(unit, unit) for unit in units}  # (empty, first, last)
        self.empty = {unit for unit in units if self._of[unit][0]}
        self._firsts: dict[str, tuple[frozenset[tuple[int, int]], bool]] = {}
        self._follows: defaultdict[Rule, frozenset[tuple[int, int]]] = defaultdict(frozenset)

    def found(self) -> set[Rule]:
        """Lexemes that have to be split; none if all is well."""
        self._settle()
        if not any(self._follows.values()):
            return set()
        ends = {place for _, _, last in self._of.values() for place in last}
        start = frozenset(place for _, first, _ in self._of.values() for place in first)
        clashing: set[Rule] = set()
        seen, ahead = set[frozenset[int]](), [*self._steps(start).values()]
        while ahead:
            state = ahead.pop()
            if state in seen:
                continue
            seen.add(state)
            if len(seen) > MOST_STATES:
                return {unit for unit in self._of if not isinstance(unit, Chars)}
            over = {self._places.owners[place] for place in state & ends}
            onward = self._steps(frozenset(q for p in state for q in self._places.after[p]))
            for (low, high), places in onward.items():
                if any(l <= high and low <= h for unit in over for l, h in self._follows[unit]):  # noqa: E741
                    clashing |= {self._places.owners[place] for place in places}
            ahead += onward.values()
        return clashing

    def _steps(self, targets: frozenset[int]) -> dict[tuple[int, int], frozenset[int]]:
        """The targets by the characters that lead to them."""
        edges = sorted(
            {
                edge
                for t in targets
                for low, high in self._places.chars[t]
                for edge in (low, high + 1)
            }
        )
        found = {}
        for low, end in pairwise(edges):
            here = frozenset(
                t for t in targets if any(a <= low <= b for a, b in self._places.chars[t])
            )
            if here:
                found[low, end - 1] = here
        return found

    def _built(self, rule: Rule, owner: Rule) -> tuple[bool, set[int], set[int]]:
        """Whether the rule may be empty, its first and its last places."""
        places = self._places
        match rule:
            case Chars(ranges):
                places.chars.append(ranges)
                places.owners.append(owner)
                places.after.append(set())
                return False, {len(places.chars) - 1}, {len(places.chars) - 1}
            case Named(name):
                return self._built(self._rules[name], owner)
            case Choice(options):
                ways = [self._built(option, owner) for option in options]
                return (
                    any(w[0] for w in ways),
                    set().union(*(w[1] for w in ways)),
                    set().union(*(w[2] for w in ways)),
                )
            case Repeat(part, least, most):
                empty, first, last = self._built(part, owner)
                for place in last if most != 1 else ():
                    places.after[place] |= first
                return empty or least == 0, first, last
            case _:
                empty, firsts, lasts = True, set[int](), set[int]()
                for part in _inner(rule):
                    skips, first, last = self._built(part, owner)
                    for place in lasts:
                        places.after[place] |= first
                    firsts |= first if empty else set()
                    lasts = last | (lasts if skips else set())
                    empty = empty and skips
                return empty, firsts, lasts

    def _settle(self) -> None:
        """Find what may follow every lexeme."""
        before = None
        while before != self._firsts:
            before = dict(self._firsts)
            for name in self._reached:
                self._firsts[name] = self._first(self._rules[name])
        after: defaultdict[str, frozenset[tuple[int, int]]] = defaultdict(frozenset)
        size = -1
        while size < (size := sum(map(len, (*after.values(), *self._follows.values())))):
            for name in self._reached:
                self._spread(self._rules[name], after[name], after)

    def _first(self, rule: Rule) -> tuple[frozenset[tuple[int, int]], bool]:
        """The characters that the rule may begin with, and whether it may be empty."""
        if rule in self._of:
            skips, places, _ = self._of[rule]
            return frozenset(r for place in places for r in self._places.chars[place]), skips
        match rule:
            case Named(name):
                return self._firsts.get(name, (frozenset(), False))
            case Choice(options):
                ways = [self._first(option) for option in options]
                return frozenset().union(*(way[0] for way in ways)), any(way[1] for way in ways)
            case Repeat(part, least, _):
                first, empty = self._first(part)
                return first, empty or least == 0
            case Row(parts):
                ways = [self._first(part) for part in parts]
                many = next((n for n, way in enumerate(ways, 1) if not way[1]), len(ways))
                first = frozenset().union(*(way[0] for way in ways[:many]))
                return first, all(way[1] for way in ways)
            case _:
                return frozenset(), False

    def _spread(
        self,
        rule: Rule,
        follow: frozenset[tuple[int, int]],
        after: dict[str, frozenset[tuple[int, int]]],
    ) -> None:
        """Note for the lexemes in a rule what may follow it."""
        if rule in self._of:
            self._follows[rule] |= follow
            return
        match rule:
            case Named(name):
                after[name] |= follow
            case Choice(options):
                for option in options:
                    self._spread(option, follow, after)
            case Repeat(part, _, most):
                more = self._first(part)[0] if most != 1 else frozenset()
                self._spread(part, follow | more, after)
            case Row(parts):
                for part in reversed(parts):
                    self._spread(part, follow, after)
                    first, empty = self._first(part)
                    follow = first | follow if empty else first
            case _:
                return
