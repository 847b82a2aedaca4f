"""States: the automaton of a grammar over bytes, with a table of next states.

A state is a set of stacks, as in any parser that follows all parses at once. A stack is what must
come next. States are created when a text first needs them: a JSON Schema has hundreds, of which an
answer meets a few dozen.

Ambiguous grammars, such as nested repetitions, could take minutes, so work is limited. A grammar
starts with a budget, every token of an answer adds to it, and an answer that needs more ends with
an error. A unit of work takes about a microsecond.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.errors import Ambiguous
from engine.grammar.rules import Bytes, Choice, Grammar, Named, Repeat, Row, Rule, Text

FEW = 8  # next bytes that ``live`` returns at most
DEAD = 0  # the state of a text that the grammar does not allow
_END = 0  # the empty stack
_UNKNOWN = -1  # in a row of the table that is not computed yet

BUDGET = 1 << 19  # units at most; 300 optional names need 1 << 18 at once
GRANTED = 1 << 15  # units per token
MOST = 1 << 18  # states, 1 KiB each; a string of 10,000 characters has 1 << 17
_ROW, _STACK = 32, 8  # units per row and per stack, in addition to one per visit


class _Stack(NamedTuple):
    """A rule, how much of it is done, and the stack that follows it."""

    rule: int
    done: int
    rest: int


class States:
    """The states of one grammar."""

    def __init__(self, grammar: Grammar) -> None:
        """``grammar`` must be checked."""
        self._rules: list[Rule] = []
        self._numbers: dict[int, int] = {}  # id(rule) -> its place; the grammar keeps them alive
        self._grammar = grammar
        self._stacks: list[_Stack] = [_Stack(-1, 0, -1)]
        self._stack_numbers: dict[_Stack, int] = {}
        self._sets: list[frozenset[int]] = [frozenset()]
        self._set_numbers: dict[frozenset[int], int] = {frozenset(): DEAD}
        self._opened: dict[int, list[int]] = {}
        self._left = BUDGET
        self._live: dict[int, tuple[int, ...]] = {}
        self._table = np.full((64, 256), _UNKNOWN, np.int32)
        self._table[DEAD] = DEAD
        self.start = self._state([self._stack(Named(grammar.root), 0, _END)])

    def __len__(self) -> int:
        """The number of states created so far."""
        return len(self._sets)

    @property
    def exhausted(self) -> bool:
        """Whether the budget is used up."""
        return self._left < 0

    def grant(self, tokens: int) -> None:
        """Add budget for ``tokens`` more tokens of an answer."""
        self._left = min(BUDGET, self._left + tokens * GRANTED)

    def accepts(self, state: int) -> bool:
        """Whether the text may end here."""
        return _END in self._sets[state]

    def live(self, state: int) -> tuple[int, ...]:
        """The next bytes allowed, the first few of many."""
        if state not in self._live:
            row = self.steps([state])[state]
            self._live[state] = tuple(np.flatnonzero(row)[:FEW].tolist())
        return self._live[state]

    def walk(self, state: int, text: bytes) -> int:
        """The state after ``text``. Raises Ambiguous."""
        for byte in text:
            if state == DEAD:
                return DEAD
            found = int(self._table[state, byte])
            state = found if found != _UNKNOWN else int(self.steps([state])[state, byte])
        return state

    def steps(self, states: Iterable[int]) -> NDArray[np.int32]:
        """The table [S, 256] of next states, with the rows of ``states`` computed. Raises Ambiguous."""
        for state in states:
            if self._table[state, 0] == _UNKNOWN:
                row = self._row(state)  # creates states, so the table may grow
                self._table[state] = row
        return self._table

    def _row(self, state: int) -> NDArray[np.int32]:
        """The next state for each byte."""
        self._spend(_ROW)
        stacks: defaultdict[tuple[int, int], list[int]] = defaultdict(list)  # by range
        for stack in self._sets[state]:
            for low, high, after in self._moves(stack):
                stacks[low, high].append(after)
        ranges_of: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)  # by byte
        for low, high in stacks:
            for byte in range(low, high + 1):
                ranges_of[byte].append((low, high))
        known: dict[tuple[tuple[int, int], ...], int] = {}
        row = np.full(256, DEAD, np.int32)
        for byte, ranges in ranges_of.items():
            key = tuple(ranges)
            if key not in known:
                known[key] = self._state(stack for part in ranges for stack in stacks[part])
            row[byte] = known[key]
        return row

    def _spend(self, units: int) -> None:
        self._left -= units
        if self._left < 0:
            raise Ambiguous

    def _moves(self, number: int) -> Iterator[tuple[int, int, int]]:
        """For a stack that waits for a byte: first byte, last byte, and the stack after them."""
        if number == _END:
            return
        stack = self._stacks[number]
        match self._rules[stack.rule]:
            case Text(value):
                at = stack.done
                over = at + 1 == len(value)
                after = stack.rest if over else self._at(_Stack(stack.rule, at + 1, stack.rest))
                yield value[at], value[at], after
            case Bytes(ranges):
                for low, high in ranges:
                    yield low, high, stack.rest
            case _:
                raise AssertionError("a state has only stacks that wait for a byte")

    def _state(self, stacks: Iterable[int]) -> int:
        """The state of these stacks, each expanded until it waits for a byte or is at its end."""
        seen = set(stacks)
        pending, waiting = list(seen), list[int]()
        while pending:
            number = pending.pop()
            self._spend(1)
            opened = self._expanded(number)
            if not opened:
                waiting.append(number)
            pending += [fresh for fresh in opened if fresh not in seen]
            seen.update(opened)
        found = frozenset(waiting)
        if found not in self._set_numbers:
            if len(self._sets) == MOST:
                raise Ambiguous
            self._set_numbers[found] = len(self._sets)
            self._sets.append(found)
            self._grow()
        return self._set_numbers[found]

    def _expanded(self, number: int) -> list[int]:
        """The stacks that a stack expands to; none if it waits for a byte, or is at its end."""
        known = self._opened.get(number)
        if known is None:
            self._spend(_STACK)
            known = self._opened[number] = [] if self._waits(number) else self._open(number)
        return known

    def _waits(self, number: int) -> bool:
        """Whether the stack waits for a byte, or is at its end."""
        if number == _END:
            return True
        rule = self._rules[self._stacks[number].rule]
        return isinstance(rule, Bytes) or (isinstance(rule, Text) and bool(rule.value))

    def _open(self, number: int) -> list[int]:
        """Expand a stack that does not wait for a byte by one step."""
        place, done, rest = self._stacks[number]
        match self._rules[place]:
            case Row(parts) if done < len(parts):
                last = done + 1 == len(parts)
                after = rest if last else self._at(_Stack(place, done + 1, rest))
                return [self._stack(parts[done], 0, after)]
            case Choice(options):
                return [self._stack(option, 0, rest) for option in options]
            case Repeat(rule, least, most):
                return self._repeated(number, rule, least, most)
            case Named(name):
                return [self._stack(self._grammar.named[name], 0, rest)]
            case _:  # nothing is left of it
                return [rest]

    def _repeated(self, number: int, rule: Rule, least: int, most: int | None) -> list[int]:
        place, done, rest = self._stacks[number]
        found = [rest] if done >= least else []
        if most is None or done < most:
            again = min(done + 1, least) if most is None else done + 1
            found.append(self._stack(rule, 0, self._at(_Stack(place, again, rest))))
        return found

    def _stack(self, rule: Rule, done: int, rest: int) -> int:
        place = self._numbers.get(id(rule))
        if place is None:
            place = self._numbers[id(rule)] = len(self._rules)
            self._rules.append(rule)
        return self._at(_Stack(place, done, rest))

    def _at(self, stack: _Stack) -> int:
        if stack not in self._stack_numbers:
            self._stack_numbers[stack] = len(self._stacks)
            self._stacks.append(stack)
        return self._stack_numbers[stack]

    def _grow(self) -> None:
        if len(self._sets) > len(self._table):
            more = np.full_like(self._table, _UNKNOWN)
            self._table = np.concatenate([self._table, more])
