"""How vLLM 0.32 and SGLang 0.5.23 write answers: the shapes of their protocol modules, field by field.

Each dialect also knows the engine's errors, its model list and its metrics. The numbers and the words
come from the stub.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.app.remote.words import Said, pieces_of

Json = dict[str, Any]
CREATED = 1_790_000_000
DRAFTED, ACCEPTED, STEPS = 30, 21, 10  # tokens of every answer, as the engine counts its drafts


@dataclass(frozen=True)
class Answered:
    """What one answer consists of."""

    number: int
    model: str
    said: Sequence[Said]
    prompt_tokens: int
    body: Mapping[str, Any]
    detailed: bool = False  # whether the engine was started to count the drafts of each answer

    @property
    def completion_tokens(self) -> int:
        return sum(one.tokens for one in self.said)

    @property
    def logprobs(self) -> bool:
        return bool(self.body.get("logprobs"))

    @property
    def include_usage(self) -> bool:
        return bool((self.body.get("stream_options") or {}).get("include_usage"))

    def finish(self, said: Said) -> str:
        named = isinstance(self.body.get("tool_choice"), dict)
        return "tool_calls" if said.calls and not named and said.finish == "stop" else said.finish


def logprobs_of(said: Said, tokens: range, top: int) -> Json:
    content = []
    for at in tokens:
        token, logprob = said.content[at], said.logprobs[at]
        one = {"token": token, "logprob": logprob, "bytes": list(token.encode())}
        others = [
            {"token": f" x{i}", "logprob": logprob - i, "bytes": list(f" x{i}".encode())}
            for i in range(1, top)
        ]
        content.append({**one, "top_logprobs": ([one, *others])[:top]})
    return {"content": content}


def text_logprobs(said: Said, tokens: range, top: int) -> Json:
    offsets = [sum(map(len, said.content[:at])) for at in tokens]
    return {
        "text_offset": offsets,
        "token_logprobs": [said.logprobs[at] for at in tokens],
        "tokens": [said.content[at] for at in tokens],
        "top_logprobs": [{said.content[at]: said.logprobs[at]} if top else None for at in tokens],
    }


@dataclass(frozen=True)
class Dialect:
    """What both engines have in common."""

    name: str = ""
    reasoning: str = ""  # the name of the field
    stopped: str = ""  # the name of the field with the stop text
    call_id: str = ""  # how ids of calls begin
    owner: str = ""
    extra_choice: Json = field(default_factory=dict)
    extra_message: Json = field(default_factory=dict)
    extra_answer: Json = field(default_factory=dict)

    def usage(self, answered: Answered) -> Json:
        prompt, made = answered.prompt_tokens, answered.completion_tokens
        return {"prompt_tokens": prompt, "total_tokens": prompt + made, "completion_tokens": made}

    def card(self, name: str, context: int) -> Json:
        own = {"id": name, "object": "model", "created": CREATED, "owned_by": self.owner}
        return {**own, "root": name, "parent": None, "max_model_len": context}

    def calls(self, answered: Answered, said: Said, choice: int) -> list[Json]:
        return [
            {
                "id": self.id_of_call(answered, choice, at),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for at, call in enumerate(said.calls)
        ]

    def id_of_call(self, answered: Answered, choice: int, at: int) -> str:
        return f"{self.call_id}{answered.number:020x}{choice:02x}{at:02x}"

    def _message(self, answered: Answered, said: Said, choice: int) -> Json:
        """Null content where there is only a call, as both write it."""
        content = "".join(said.content) if said.content or not said.calls else None
        calls = {"tool_calls": self.calls(answered, said, choice)} if said.calls else {}
        reasoning = {self.reasoning: "".join(said.reasoning) or None}
        return {
            "role": "assistant", "content": content, **self.extra_message, **reasoning, **calls
        }  # fmt: skip

    def chat(self, answered: Answered) -> Json:
        top = answered.body.get("top_logprobs") or 0
        choices = [
            {
                "index": at,
                "message": self._message(answered, said, at),
                "logprobs": logprobs_of(said, range(len(said.content)), top)
                if answered.logprobs
                else None,
                "finish_reason": answered.finish(said),
                self.stopped: said.stopped_by,
                **self.extra_choice,
            }
            for at, said in enumerate(answered.said)
        ]
        return self._whole(answered, "chat.completion", choices)

    def text(self, answered: Answered) -> Json:
        top = answered.body.get("logprobs") or 0
        choices = [
            {
                "index": at,
                "text": "".join(said.content),
                "logprobs": text_logprobs(said, range(len(said.content)), top) if top else None,
                "finish_reason": said.finish,
                self.stopped: said.stopped_by,
            }
            for at, said in enumerate(answered.said)
        ]
        return self._whole(answered, "text_completion", choices)

    def _whole(self, answered: Answered, kind: str, choices: list[Json]) -> Json:
        return {
            **self._head(answered, kind),
            "choices": choices,
            "usage": self.usage(answered),
            **self.extra_answer,
        }

    def _head(self, answered: Answered, kind: str) -> Json:
        prefix = "cmpl-" if kind.startswith("text") else "chatcmpl-"
        number = f"{prefix}{answered.number:032x}"
        return {"id": number, "object": kind, "created": CREATED, "model": answered.model}

    # --- streams ----------------------------------------------------------------------------------

    def chat_chunks(self, answered: Answered) -> Iterator[Json]:
        """The choices take turns, as in a batch."""
        head = self._head(answered, "chat.completion.chunk")
        lanes = [[*self.deltas(answered, said, at)] for at, said in enumerate(answered.said)]
        for step in range(max(map(len, lanes))):
            for lane in lanes:
                if step < len(lane):
                    yield {**head, "choices": [lane[step]]}
        yield from self.last(answered, head)

    def text_chunks(self, answered: Answered) -> Iterator[Json]:
        head = self._head(answered, "text_completion")
        top = answered.body.get("logprobs") or 0
        for at, said in enumerate(answered.said):
            for token, text in enumerate(said.content):
                end = token == len(said.content) - 1
                found = text_logprobs(said, range(token, token + 1), top) if top else None
                choice = {
                    "index": at, "text": text, "logprobs": found,
                    "finish_reason": said.finish if end else None,
                    self.stopped: said.stopped_by if end else None,
                }  # fmt: skip
                yield {**head, "choices": [choice]}
        yield from self.last(answered, head)

    def deltas(self, answered: Answered, said: Said, at: int) -> Iterator[Json]:
        raise NotImplementedError

    def last(self, answered: Answered, head: Json) -> Iterator[Json]:
        if answered.include_usage:
            yield {**head, "choices": [], "usage": self.usage(answered)}

    # --- what is no answer ------------------------------------------------------------------------

    def error(self, status: int, message: str, kind: str, param: str | None = None) -> Json:
        """As the body of a response."""
        return {"error": self.failed(status, message, kind, param)}

    def failed(self, status: int, message: str, kind: str, param: str | None) -> Json:
        return {"message": message, "type": kind, "param": param, "code": status}

    def overflow(self, needed: int, holds: int) -> Json:
        raise NotImplementedError

    def metrics(self, model: str, answers: int) -> str:
        raise NotImplementedError


class Vllm(Dialect):
    """Fields that were set, in chunks; all of them in whole answers."""

    def card(self, name: str, context: int) -> Json:
        permission = {"id": "modelperm-0", "object": "model_permission", "created": CREATED, "allow_view": True, "organization": "*", "group": None, "is_blocking": False}  # fmt: skip
        return {**super().card(name, context), "permission": [permission]}

    def usage(self, answered: Answered) -> Json:
        return {**super().usage(answered), "prompt_tokens_details": None, "completion_tokens_details": None}  # fmt: skip

    def _whole(self, answered: Answered, kind: str, choices: list[Json]) -> Json:
        return {**super()._whole(answered, kind, choices), "metrics": self._speculated(answered)}

    @staticmethod
    def _speculated(answered: Answered) -> Json | None:
        if len(answered.said) > 1 or not answered.detailed:
            return None
        told = {
            "mean_acceptance_length": 1 + ACCEPTED / STEPS, "draft_acceptance_rate": ACCEPTED / DRAFTED,
            "acceptance_histogram": [1, 1, 4, 4], "num_spec_steps": STEPS,
            "num_accepted_draft_tokens": ACCEPTED, "num_draft_tokens": DRAFTED, "num_spec_tokens": 3,
        }  # fmt: skip
        return {"speculative_decoding": told}

    def deltas(self, answered: Answered, said: Said, at: int) -> Iterator[Json]:
        """The last token comes with the finish reason."""
        first = {"role": "assistant", "content": ""}
        yield {"index": at, "delta": first, "logprobs": None, "finish_reason": None}
        top, found = answered.body.get("top_logprobs") or 0, []
        found += [({"reasoning": token}, None) for token in said.reasoning]
        for token, text in enumerate(said.content):
            one = range(token, token + 1)
            found.append(
                ({"content": text}, logprobs_of(said, one, top) if answered.logprobs else None)
            )
        for number, call in enumerate(said.calls):
            own = {"id": self.id_of_call(answered, at, number), "type": "function", "index": number}
            parts = [{**own, "function": {"name": call.name}}]
            parts += [
                {"index": number, "function": {"arguments": piece}}
                for piece in pieces_of(call.arguments)
            ]
            found += [({"content": None, "tool_calls": [part]}, None) for part in parts]
        if said.calls or not found:
            found.append(({}, None))
        for delta, logprobs in found[:-1]:
            yield {"index": at, "delta": delta, "logprobs": logprobs, "finish_reason": None, "token_ids": None}  # fmt: skip
        delta, logprobs = found[-1]
        end = {"finish_reason": answered.finish(said), "stop_reason": said.stopped_by}
        yield {"index": at, "delta": delta, "logprobs": logprobs, **end, "token_ids": None}

    def last(self, answered: Answered, head: Json) -> Iterator[Json]:
        """Null fields are left out of the chunk with the usage."""
        usage = Dialect.usage(self, answered)
        told = self._speculated(answered)
        if answered.include_usage:
            yield {**head, "choices": [], "usage": usage, **({"metrics": told} if told else {})}

    def overflow(self, needed: int, holds: int) -> Json:
        message = (
            f"This model's maximum context length is {holds} tokens. However, your prompt contains "
            f"at least {needed} input tokens, which exceeds this limit even without any output "
            "tokens. Please reduce the length of the input prompt. "
            f"(parameter=input_tokens, value={needed})"
        )
        return self.error(400, message, "BadRequestError", "input_tokens")

    def metrics(self, model: str, answers: int) -> str:
        labels = f'{{engine="0",model_name="{model}"}}'
        counted = (("drafts", STEPS), ("draft_tokens", DRAFTED), ("accepted_tokens", ACCEPTED))
        return "".join(
            f"# HELP vllm:spec_decode_num_{name}_total Number of {name}.\n"
            f"# TYPE vllm:spec_decode_num_{name}_total counter\n"
            f"vllm:spec_decode_num_{name}_total{labels} {float(each * answers)}\n"
            f"# TYPE vllm:spec_decode_num_{name}_created gauge\n"
            f"vllm:spec_decode_num_{name}_created{labels} 1.7960909680949936e+09\n"
            for name, each in counted
        )


class Sglang(Dialect):
    """An error of it is no member of anything; streams write some fields as null."""

    def usage(self, answered: Answered) -> Json:
        return {**super().usage(answered), "prompt_tokens_details": None, "reasoning_tokens": 0, "completion_tokens_details": None}  # fmt: skip

    def calls(self, answered: Answered, said: Said, choice: int) -> list[Json]:
        found = super().calls(answered, said, choice)
        return [{**call, "index": number} for number, call in enumerate(found)]

    def _whole(self, answered: Answered, kind: str, choices: list[Json]) -> Json:
        return {**super()._whole(answered, kind, choices), **self._speculated(answered)}

    @staticmethod
    def _speculated(answered: Answered) -> Json:
        if not answered.body.get("return_spec_tokens_details"):
            return {}
        told = {
            "spec_accept_rate": ACCEPTED / DRAFTED, "spec_accept_length": 1 + ACCEPTED / STEPS,
            "spec_num_correct_drafts": ACCEPTED, "spec_num_proposed_drafts": DRAFTED,
            "spec_verify_ct": STEPS, "spec_correct_drafts_histogram": [1, 1, 4, 4],
        }  # fmt: skip
        return {"sglext": {"spec_tokens_details": told}}

    def deltas(self, answered: Answered, said: Said, at: int) -> Iterator[Json]:
        """A role alone, what is said, and the finish reason alone."""

        def choice(delta: Json, logprobs: Json | None = None, end: str | None = None) -> Json:
            own = {"reasoning_content": None, **delta}
            stopped = said.stopped_by if end else None
            return {"index": at, "delta": own, "logprobs": logprobs, "finish_reason": end, "matched_stop": stopped}  # fmt: skip

        yield choice({"role": "assistant", "content": ""})
        for token in said.reasoning:
            yield choice({"reasoning_content": token})
        top = answered.body.get("top_logprobs") or 0
        for token, text in enumerate(said.content):
            one = range(token, token + 1)
            yield choice(
                {"content": text}, logprobs_of(said, one, top) if answered.logprobs else None
            )
        for number, call in enumerate(said.calls):
            for piece in (None, *pieces_of(call.arguments)):
                first = piece is None
                part = {
                    "id": self.id_of_call(answered, at, number) if first else None,
                    "index": number,
                    "type": "function",
                    "function": {"name": call.name if first else None, "arguments": piece or ""},
                }
                yield choice({"role": None, "content": None, "tool_calls": [part]})
        yield choice({}, None, answered.finish(said))

    def last(self, answered: Answered, head: Json) -> Iterator[Json]:
        told = self._speculated(answered)
        if told:
            yield {**head, "choices": [], "usage": None, **told}
        yield from super().last(answered, head)

    def error(self, status: int, message: str, kind: str, param: str | None = None) -> Json:
        return {"object": "error", **self.failed(status, message, kind, param)}

    def overflow(self, needed: int, holds: int) -> Json:
        message = f"The input ({needed} tokens) is longer than the model's context length ({holds} tokens)."
        return self.error(400, message, "BadRequest")

    def metrics(self, model: str, answers: int) -> str:
        labels = f'{{model_name="{model}",tp_rank="0"}}'
        length, rate = (1 + ACCEPTED / STEPS, ACCEPTED / DRAFTED) if answers else (0.0, 0.0)
        return (
            "# HELP sglang:spec_accept_length Mean acceptance length of speculative decoding.\n"
            "# TYPE sglang:spec_accept_length gauge\n"
            f"sglang:spec_accept_length{labels} {length}\n"
            "# TYPE sglang:spec_accept_rate gauge\n"
            f"sglang:spec_accept_rate{labels} {rate}\n"
        )


VLLM = Vllm(
    name="vllm",
    reasoning="reasoning",
    stopped="stop_reason",
    call_id="chatcmpl-tool-",
    owner="vllm",
    extra_choice={"token_ids": None, "routed_experts": None},
    extra_message=dict.fromkeys(("refusal", "annotations", "audio", "function_call")),
    extra_answer=dict.fromkeys(("service_tier", "system_fingerprint", "prompt_logprobs", "prompt_token_ids", "kv_transfer_params")),
)  # fmt: skip
SGLANG = Sglang(
    name="sglang",
    reasoning="reasoning_content",
    stopped="matched_stop",
    call_id="call_",
    owner="sglang",
    extra_answer={"metadata": {"weight_version": "default"}},
)


def encoded(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
