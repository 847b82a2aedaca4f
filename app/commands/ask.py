"""The command ``ask``: one answer, streamed to the terminal."""

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.chat.attachments import MAX_BYTES, read_attachment
from app.commands.answering import add_answering, answering, opened
from app.commands.arguments import set_command, words
from app.errors import RequestFailed
from app.request import ChatRequest, Completion, Message, check_request
from app.settings import Settings
from app.terminal import piped, write, write_lines
from app.text.decoding import decoded
from app.text.formats.closed import without_others
from app.text.formats.gbnf import gbnf_grammar
from app.text.formats.json_schema import schema_grammar
from engine.errors import InvalidRequest
from engine.grammar.grammar import Grammar

ANY_JSON, GBNF = "json", ".gbnf"
PIPED = "-"


@dataclass(frozen=True, slots=True)
class AskOptions:
    """One question, answered in the terminal."""

    settings: Settings
    model: str
    turn: ChatRequest
    json: bool


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    option = parser.add_argument
    option(
        "prompt",
        metavar="TEXT",
        nargs="*",
        type=words,
        help="the question; a text that is piped in comes before it, - takes only that",
    )
    add_answering(parser)
    option(
        "--format",
        metavar="json|FILE",
        help="constrain the answer to JSON, or to the JSON Schema or grammar (.gbnf) in FILE",
    )
    option("--json", action="store_true", help="print one line of JSON instead of the text")
    set_command(parser, _options, run)


def _options(given: argparse.Namespace, settings: Settings) -> AskOptions:
    chosen, reply = answering(given, settings)
    form = Form() if given.format is None else read_format(given.format)
    turn = ChatRequest(
        messages=(Message("user", _question(given.prompt)),),
        sampling=reply.sampling,
        max_tokens=reply.max_tokens,
        drafter=reply.drafter,
        grammar=form.grammar,
        schema=form.schema,
        gbnf=form.gbnf,
        thinking=reply.thinking,
        unset=reply.unset,
    )
    check_request(turn)
    return AskOptions(chosen, given.model, turn, given.json)


def _question(typed: Sequence[str]) -> str:
    """What was typed, in quotation marks or without, after the text that was piped in."""
    alone = [*typed] == [PIPED]
    data = sys.stdin.buffer.read(MAX_BYTES + 1) if alone else piped(MAX_BYTES + 1)
    words = "" if alone else " ".join(typed)
    if data.strip():
        text = read_attachment("standard input", data).text
        return f"{text.rstrip()}\n\n{words}" if words else text
    if not typed:
        raise InvalidRequest('there is no question; write slipstream ask "TEXT", or pipe one in')
    return words


def run(options: AskOptions) -> int:
    """Answer on standard output; returns the exit code."""
    report = asyncio.run(_answer(options))
    if options.json:
        write_lines([as_json(report)])
    elif report.text and not report.text.endswith("\n"):
        write("\n")
    if report.error is not None:
        raise RequestFailed(report.error)
    return 0


def as_json(report: Completion) -> str:
    """The answer for programs."""
    stats = report.stats
    return json.dumps(
        {
            "token_ids": report.token_ids,
            "text": report.text,
            "drafter": stats.drafter,
            "reason": stats.why,
            "passes": stats.passes,
            "drafted": stats.drafted,
            "accepted": stats.accepted,
            "near_ties": stats.near_ties,
            "seconds": round(report.seconds, 6),
            "tokens_per_second": round(report.tokens_per_second, 3),
            "finish_reason": report.finish_reason.value,
            "prompt_tokens": stats.prompt_tokens,
        }
    )


async def _answer(options: AskOptions) -> Completion:
    assistant = await opened(options.settings, options.model, keeps=False)
    try:
        async with aclosing(assistant.reply(options.turn)) as deltas:
            async for delta in deltas:
                if isinstance(delta, Completion):
                    return delta
                if not options.json:
                    write(delta.tagged)
    finally:
        await assistant.close()
    raise AssertionError("an answer ends with a report")


@dataclass(frozen=True, slots=True)
class Form:
    """The form of an answer, and the schema or the GBNF that it was made of."""

    grammar: Grammar | None = None
    schema: Mapping[str, Any] | None = None
    gbnf: str = ""


def read_format(name: str) -> Form:
    """Any JSON object for ``json``, else the GBNF grammar (.gbnf) or JSON Schema in the file.

    Objects whose schema lists properties and says nothing of others have no others: small models would
    add some for ever. Raises InvalidRequest.
    """
    if name == ANY_JSON:
        return _of_schema({"type": "object"})
    try:
        text = decoded(Path(name).read_bytes())
        if text is None:
            raise InvalidRequest(f"{name} is no text; save it as UTF-8")
        if name.endswith(GBNF):
            return Form(gbnf_grammar(text), gbnf=text)
        return _of_schema(without_others(json.loads(text)))
    except OSError as error:
        raise InvalidRequest(
            f"{name} cannot be read: {error.strerror}; name a file with a JSON Schema or a grammar "
            "(.gbnf), or write json"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{name} is not JSON: {error}") from error


def _of_schema(schema: Any) -> Form:
    return Form(schema_grammar(schema), schema)
