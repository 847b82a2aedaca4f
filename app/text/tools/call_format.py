"""The form of a call: what a model writes around the name of a function and its arguments.

Qwen 2.5 and 3, and Hermes, write the arguments as one JSON object,

    <tool_call>
    {"name": "NAME", "arguments": ARGUMENTS}
    </tool_call>

Llama 3 writes {"name": "NAME", "parameters": ARGUMENTS} and nothing else, and Qwen 3 Coder writes
pairs, texts without quotes and all else as JSON:

    <tool_call>
    <function=NAME>
    <parameter=KEY>
    VALUE
    </parameter>
    </function>
    </tool_call>
"""

import re
from dataclasses import dataclass

_TAG = re.compile(r"\s*(<[^<>\s]+>|\[[A-Z_]+\])")  # no other text begins so


@dataclass(frozen=True, slots=True)
class PairForm:
    """Texts around one argument: before its key, between key and value, after the value."""

    before: str
    between: str
    after: str


@dataclass(frozen=True, slots=True)
class CallForm:
    """Texts of a call: before the name, between name and arguments, after them.

    ``separator`` is between two calls of one answer; None where an answer has only one. ``pair`` is how
    each argument is written; None where all of them are one JSON object.
    """

    before: str
    between: str
    after: str
    separator: str | None = None
    pair: PairForm | None = None

    @property
    def opening(self) -> str:
        """The start of a call, without the space before it."""
        return self.tag or self.before.lstrip()

    @property
    def tag(self) -> str:
        """The part of the opening that marks a call anywhere in an answer.

        Empty where a call looks like any JSON, so that only the start of an answer can be one.
        """
        found = _TAG.match(self.before)
        return found.group(1) if found else ""

    @property
    def texts(self) -> tuple[str, ...]:
        """All that the model writes of a form."""
        pair = (self.pair.before, self.pair.between, self.pair.after) if self.pair else ()
        return (self.before, self.between, self.after, *pair)


DEFAULT_FORM = CallForm('<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>", "\n")
