"""A model that answers in channels: a small real tokenizer, a template of its shape, an engine with a script."""

import json
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

from app.chat.assistant import Assistant
from app.chat.loaded_model import LoadedModel
from app.history.store import History
from app.models.catalog import CatalogEntry
from app.settings import Settings
from app.text.chat_text import ChatText
from app.text.vocabulary import FolderVocabulary
from app.worker.engine_process import serve
from app.worker.worker import EngineWorker
from engine.request import GenerationRequest, ModelSpec
from tests.app.byte_level import byte_level
from tests.app.fake_engine import FakeEngine
from tests.app.text.parsing import Vocabulary

CONTROL = (
    "<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>",
    "<|constrain|>", "<|endoftext|>",
)  # fmt: skip
ANALYSIS, FINAL = "<|channel|>analysis<|message|>", "<|channel|>final<|message|>"
NEXT = "<|end|><|start|>assistant"
LINES = (
    "assistant analysis commentary final json to=functions.add",
    "The sum of 17 and 25 is 42, so that is what I say.",
    '{"a": 17, "b": 25} <think> </think>',
)

# Shortened, with the same shape: no thoughts, one call for each message, results without an id.
TEMPLATE = """{{ '<|start|>system<|message|>Valid channels: analysis, commentary, final.<|end|>' }}
{%- set system = messages[0].content if messages[0].role == 'system' else '' %}
{%- if system or tools %}
{{- '<|start|>developer<|message|>' + system }}
{%- if tools %}{{ '# Tools\\nnamespace functions {\\n' }}
{%- for tool in tools %}
{{- '// ' + tool.function.description + '\\ntype ' + tool.function.name + ' = (_: ' + tool.function.parameters | tojson + ') => any;\\n' }}
{%- endfor %}{{ '}' }}
{%- endif %}{{ '<|end|>' }}
{%- endif %}
{%- set last = namespace(name=none) %}
{%- for m in messages %}
{%- if m.role == 'assistant' %}
{%- if '<|channel|>' in m.content %}{{ raise_exception('no channels in a content') }}{% endif %}
{%- if 'tool_calls' in m %}
{%- set call = m.tool_calls[0].function %}
{%- if m.content %}{{ '<|start|>assistant<|channel|>analysis<|message|>' + m.content + '<|end|>' }}
{%- if m.thinking %}{{ raise_exception('words or a thought, not both') }}{% endif %}
{%- elif m.thinking %}{{ '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}{% endif %}
{{- '<|start|>assistant to=functions.' + call.name + '<|channel|>commentary json<|message|>' + call.arguments | tojson + '<|call|>' }}
{%- set last.name = call.name %}
{%- else %}
{{- '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|end|>' }}
{%- set last.name = none %}
{%- endif %}
{%- elif m.role == 'tool' %}
{%- if last.name is none %}{{ raise_exception('no call before this result') }}{% endif %}
{{- '<|start|>functions.' + last.name + ' to=assistant<|channel|>commentary<|message|>' + m.content | tojson + '<|end|>' }}
{%- elif m.role == 'user' %}
{{- '<|start|>user<|message|>' + m.content + '<|end|>' }}
{%- endif %}
{%- endfor %}<|start|>assistant"""


TOKENIZER = byte_level(CONTROL, LINES)
VOCABULARY, FOLDER_VOCABULARY = Vocabulary(TOKENIZER), FolderVocabulary(TOKENIZER)
ids_of, typed, shown = VOCABULARY.ids_of, VOCABULARY.typed, VOCABULARY.shown


def files(folder: Path, template: str = TEMPLATE) -> Path:
    """The folder of such a model, without its weights; its script is ``answer.txt``."""
    ends = [TOKENIZER.token_to_id(text) for text in ("<|return|>", "<|end|>")]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    return VOCABULARY.save(folder, template, "<|return|>")


async def assistant(folder: Path) -> Assistant:
    """One whose engine says what ``answer.txt`` says; all else is real."""
    spec = ModelSpec("channelled", str(folder))
    worker = EngineWorker(spec, scripted)
    entry = CatalogEntry("channelled", "Answers in channels.", folder)
    model = LoadedModel(entry, spec, await worker.start(), worker, ChatText.load(folder))
    return Assistant(Settings(home=folder), model, History.open(folder / "history.db"))


def scripted(connection: Connection, spec: ModelSpec, level: str) -> None:
    """Entry: says what is in ``answer.txt``, up to a stop token, whatever is asked."""
    folder = Path(spec.folder)
    vocabulary = FolderVocabulary.load(folder)

    def script(request: GenerationRequest) -> list[int]:
        ids = vocabulary.encode((folder / "answer.txt").read_text(encoding="utf-8"))
        stops = [place for place, token in enumerate(ids) if token in request.stop_tokens]
        return ids[: stops[0] if stops else len(ids)][: request.max_tokens]

    def build(spec: ModelSpec) -> FakeEngine:
        engine = FakeEngine(spec, script, width=1, pause=0.002)
        engine.facts = replace(engine.facts, context=4096)
        return engine

    serve(connection, spec, build, level, together=0.0)  # each pass is an event
