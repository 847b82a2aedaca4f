"""Tool calls in the text of an answer, parsed while it arrives."""

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from app.request import CallDelta, Tool
from app.text.detokenizer import open_length
from app.text.tools.arguments import Arguments, ObjectArguments, arguments_of
from app.text.tools.bare_call import bare_calls, may_become_calls, never_ends
from app.text.tools.call_format import CallForm
from app.text.tools.values import parameters


@dataclass(slots=True)
class Parsed:
    """What one step found."""

    text: str = ""
    calls: list[CallDelta] = field(default_factory=list)


class ToolCallParser:
    """Reads one answer; text that may become a call is held back until that is known."""

    def __init__(
        self, form: CallForm, tools: Iterable[Tool], given: str = "", *, once: bool = False
    ) -> None:
        """A call of a tool that is not in ``tools`` is text. ``given`` is the start of the answer.

        A call that has begun there is reported with what was given of it. ``once``: the answer is over
        where it repeats one of its calls word for word, as small models do that may say nothing else.
        """
        self._form, self._tools = form, {tool.name: tool for tool in tools}
        self._once = False  # of what was given
        self._written: list[tuple[str, str]] = []  # whole calls: names and arguments
        self._name, self._so_far = "", ""  # of the last call
        self._kept: list[CallDelta] = []  # of it, as long as it may repeat another one
        self.repeated = False  # the answer is over
        self._held, self._spoke = "", False
        self._other = False  # what began like a call without a tag was none of this form
        self._step: Callable[[Parsed], bool] = self._speak
        self._arguments: Arguments = ObjectArguments()
        self.called = 0  # calls so far
        self._given = 0  # characters held back that are no part of the rest
        parts = self.feed(given).calls
        # of the start's last call, where it is not closed: the others were reported before
        closing = self._step == self._close
        last = self.called - closing if closing or self._step == self._argue else -1
        self.begun = [replace(part, index=0) for part in parts if part.index == last]
        self.called, self._given = int(closing), 0 if closing else len(self._held)
        self._written, self._once = [], once

    def feed(self, text: str) -> Parsed:
        """What the next text completes."""
        found = Parsed()
        self._held += text
        while self._held and not self.repeated and self._step(found):
            pass
        return found

    def end(self, *, cut: bool = False) -> Parsed:
        """What was held back: an answer that is calls without marks, or text and no call.

        Half a call is dropped, and half its opening where the answer was ``cut`` off.
        """
        left, found = self._held, Parsed()
        self._held = ""
        if self._may_be_bare(left):
            self._take_bare(found, left, cut=cut)
        half = left.lstrip() and self._form.opening.startswith(left.lstrip())
        marked = bool(self._form.tag) and self._step == self._open
        if not (self.called or self._step == self._argue or marked or (cut and half)):
            self._tell(found, left)
        return found

    def _speak(self, found: Parsed) -> bool:
        """Text up to where a call may begin; space before a call is dropped."""
        if self._may_be_bare(self._held):
            if never_ends(self._held, self._tools):
                self._take_bare(found, self._held, cut=True)
                self._held, self.repeated = "", True
            return False
        at = self._call_at()
        if at < 0:
            self._say(found, len(self._held) - self._open_length())
            return False
        self._say(found, at)
        opening = self._held.lstrip()
        self._given = max(0, self._given - (len(self._held) - len(opening)))
        self._held, self._step = opening, self._open
        return True

    def _say(self, found: Parsed, end: int) -> None:
        """Let text go, but for space at its end."""
        free = self._held[:end].rstrip()
        self._tell(found, free)
        self._held = self._held[len(free) :]

    def _tell(self, found: Parsed, text: str) -> None:
        """Add a text, but for what the start of the answer had of it."""
        found.text += text[self._given :]
        self._given = max(0, self._given - len(text))
        self._spoke = self._spoke or bool(text)

    def _may_be_bare(self, text: str) -> bool:
        """Whether all of the answer may be calls in another form than this model's own."""
        start, opening = text.lstrip(), self._form.opening
        own = not self._form.tag and (start.startswith(opening) or opening.startswith(start))
        if not self._may_begin or (own and not self._other):
            return False
        return may_become_calls(text, self._tools)

    def _take_bare(self, found: Parsed, text: str, *, cut: bool) -> None:
        """Add the calls of an answer without marks."""
        for name, arguments in bare_calls(text, self._tools, cut=cut):
            found.calls.append(self._new_call(name, arguments))
            self.called += 1

    def _new_call(self, name: str, arguments: str = "") -> CallDelta:
        return CallDelta(self.called, arguments, name, f"call_{uuid.uuid4().hex[:24]}")

    def _call_at(self) -> int:
        """Where a call seems to begin; -1 for nowhere."""
        if self._form.tag:
            return self._held.find(self._form.tag)
        return 0 if self._may_begin and self._held.lstrip().startswith(self._form.opening) else -1

    def _open_length(self) -> int:
        """How much at the end may become an opening."""
        if self._form.tag:
            return open_length(self._held, [self._form.tag])
        opens = self._may_begin and self._form.opening.startswith(self._held.lstrip())
        return len(self._held) if opens else 0

    @property
    def _may_begin(self) -> bool:
        """Calls without a tag are found only at the start of an answer."""
        return not self._spoke and not self.called

    def _open(self, found: Parsed) -> bool:
        """The opening, the name and the text before the arguments; anything else was text."""
        before, between = self._form.before.lstrip(), self._form.between
        between += "" if self._form.pair else "{"
        starts = {name: f"{before}{name}{between}" for name in self._tools}
        if any(start.startswith(self._held) and start != self._held for start in starts.values()):
            return False  # so far it is one
        opened = [name for name, start in starts.items() if self._held.startswith(start)]
        if not opened:
            if not self._form.tag and not self._other:
                self._other, self._step = True, self._speak
                return True
            self._tell(found, self._held[0])
            self._held, self._step = self._held[1:], self._speak
            return True
        name = max(opened, key=len)
        self._held = self._held.removeprefix(f"{before}{name}{self._form.between}")
        self._name, self._so_far = name, ""
        self._report(found, self._new_call(name))
        self._given = 0
        self._arguments = arguments_of(self._form, parameters(self._tools[name]))
        self._step = self._argue
        return True

    def _argue(self, found: Parsed) -> bool:
        """Arguments up to their end."""
        part, self._held = self._arguments.take(self._held)
        if part:
            self._so_far += part
            self._report(found, CallDelta(self.called, part))
        if not self._arguments.over:
            return False
        self.repeated = bool(self._kept)
        if not self.repeated:
            self._written.append((self._name, self._so_far))
            self.called += 1
            self._step = self._close
        return True

    def _report(self, found: Parsed, part: CallDelta) -> None:
        """Add a part of a call, or keep it while the call is the same as an earlier one."""
        self._kept.append(part)
        name, so_far = self._name, self._so_far
        if not (self._once and any(n == name and a.startswith(so_far) for n, a in self._written)):
            found.calls += self._kept
            self._kept = []

    def _close(self, _: Parsed) -> bool:
        """The text after the arguments."""
        after = self._form.after
        if after.startswith(self._held) and self._held != after:
            return False
        self._held = self._held.removeprefix(after)
        self._step = self._speak
        return True
