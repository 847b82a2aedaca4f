"""What a text that is to be gone on with may look like; nothing that cannot be honoured is ignored."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError
from typing_extensions import override

from app.request import ChatRequest
from app.server.openai_chat.schemas import REFUSED, RequestBody
from app.server.text_schemas import valid_unicode

_NO_TOOLS = "tools are not supported here; send messages to /v1/chat/completions"
_NO_ECHO = "the answer comes without the prompt; leave it out, and put the prompt before the answer"
_NO_SUFFIX = "write the model's own control texts for the middle of a file into the prompt"

USUAL_TOKENS = 16  # of a completion, as OpenAI has it
_REFUSED_OF_TEXT: Mapping[str, tuple[tuple[object, ...], str]] = {
    **REFUSED,
    "tools": (([],), _NO_TOOLS),
    "tool_choice": (("none", "auto"), _NO_TOOLS),
    "echo": ((False,), _NO_ECHO),
    "suffix": (("",), _NO_SUFFIX),
}


def _only_prompt(prompt: object) -> object:
    """The text of a list with one."""
    match prompt:
        case "" | [""] | []:
            raise PydanticCustomError(
                "empty", "the prompt is empty; there is nothing to go on with"
            )
        case [str(text)]:
            return text
        case [int(), *_] | [[int(), *_], *_]:
            raise PydanticCustomError("prompt", "send the prompt as text, not as token ids")
        case [_, _, *_]:
            raise PydanticCustomError("prompt", "send one prompt per request")
        case _:
            return prompt


Prompt = Annotated[str, BeforeValidator(valid_unicode), BeforeValidator(_only_prompt)]


class CompletionBody(RequestBody):
    """A text that the model is to go on with, as it stands."""

    refused, filling = _REFUSED_OF_TEXT, "prompt"

    prompt: Prompt
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None

    @property
    @override
    def turn(self) -> ChatRequest:
        """What the assistant is asked."""
        return ChatRequest(
            messages=(),
            text=self.prompt,
            sampling=self.sampling,
            max_tokens=self.max_tokens or USUAL_TOKENS,
            stop=tuple(self.stop or ()),
            drafter=self.drafter,
            grammar=self._grammar,
            logprobs=self.logprobs,
        )
