"""``GET /metrics``: totals over all answers in Prometheus' text format.

What llama-server reports, too, has its names, so that its dashboards work unchanged.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fastapi import APIRouter
from starlette.responses import PlainTextResponse

from app.chat.assistant import Assistant
from app.chat.totals import Totals

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
THEIRS, OURS = "llamacpp:", "slipstream:"


class Metric(NamedTuple):
    """One name and its values, each by the labels between braces; "" is none."""

    name: str
    kind: str
    text: str
    values: Sequence[tuple[str, float]]


def router(assistant: Assistant) -> APIRouter:
    """Read only."""
    routes = APIRouter()

    @routes.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> PlainTextResponse:
        now = Metric(
            f"{THEIRS}requests_processing", "gauge", "answers that are being written",
            [("", assistant.answering)],
        )  # fmt: skip
        lines = [*_counted(assistant.totals), *_drafting(assistant.totals), now]
        return PlainTextResponse("".join(map(_lines, lines)), media_type=MEDIA_TYPE)

    return routes


def _counted(totals: Totals) -> Iterator[Metric]:
    for name, text, value in (
        ("prompt_tokens_total", "prompt tokens that were read", totals.read),
        ("prompt_seconds_total", "seconds of reading prompts", totals.prompt_seconds),
        ("tokens_predicted_total", "tokens of answers", totals.emitted),
        ("tokens_predicted_seconds_total", "seconds of decoding", totals.decode_seconds),
        ("n_decode_total", "passes of the model that decode", totals.passes),
        ("spec_decode_num_draft_tokens_total", "tokens that were drafted", totals.drafted),
        ("spec_decode_num_accepted_tokens_total", "drafted tokens that were accepted", totals.accepted),
    ):  # fmt: skip
        yield Metric(f"{THEIRS}{name}", "counter", text, [("", value)])


def _drafting(totals: Totals) -> Iterator[Metric]:
    depths = [
        (f'{{position="{at}"}}', float(depth.accepted)) for at, depth in enumerate(totals.depths)
    ]
    text = "accepted tokens by their place in a draft"
    yield Metric(f"{THEIRS}spec_decode_num_accepted_tokens_per_pos_total", "counter", text, depths)
    text = "prompt tokens that were found in a cache"
    yield Metric(f"{OURS}prompt_tokens_cached_total", "counter", text, [("", totals.cached)])
    ends = [(f'{{finish_reason="{end}"}}', float(n)) for end, n in sorted(totals.answers.items())]
    yield Metric(f"{OURS}answers_total", "counter", "answers by how they ended", ends)
    spent = [(f'{{drafter="{name}"}}', one) for name, one in sorted(totals.by_drafter.items())]
    for name, text, values in (
        ("passes_total", "passes by drafter", [(on, float(s.passes)) for on, s in spent]),
        ("tokens_total", "tokens by drafter", [(on, float(s.tokens)) for on, s in spent]),
        (
            "decode_seconds_total",
            "seconds of decoding by drafter",
            [(on, s.seconds) for on, s in spent],
        ),
        (
            "plain_seconds_total",
            "seconds of plain decoding for the same tokens, by its measured cost",
            [(on, s.plain_seconds) for on, s in spent],
        ),
    ):
        yield Metric(f"{OURS}{name}", "counter", text, values)


def _lines(metric: Metric) -> str:
    values = "".join(f"{metric.name}{on} {value}\n" for on, value in metric.values)
    return f"# HELP {metric.name} {metric.text}\n# TYPE {metric.name} {metric.kind}\n{values}"
