"""Templates by name, and base models, which have none."""

import json
import shutil

import pytest

from app.errors import SettingsError
from app.request import Message
from app.text.chat_text import ChatText
from app.text.named_templates import TEMPLATES, document, template_source
from app.text.template import ChatTemplate
from app.text.vocabulary import FolderVocabulary
from engine.errors import InvalidRequest, ModelUnusable
from tests.app.byte_level import byte_level
from tests.bundled import POCKET
from tests.engine.models.gguf import tiny

TURNS = [Message("system", "RULES"), Message("user", "ONE"), Message("assistant", "TWO"), Message("user", "THREE")]  # fmt: skip


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_writes_all_turns_in_order(name):
    specials = {"bos_token": "<s>", "eos_token": "</s>"}
    text = ChatTemplate(template_source(name), specials).render(TURNS)
    places = [text.index(word) for word in ("ONE", "TWO", "THREE")]
    assert places == sorted(places)
    assert text.count("RULES") == 1
    assert ChatTemplate(template_source(name), specials).render(TURNS[1:]).count("ONE") == 1


@pytest.fixture
def base(tmp_path):
    """Pocket without its template."""
    folder = tmp_path / "base"
    shutil.copytree(POCKET, folder)
    (folder / "chat_template.jinja").unlink()
    return folder


def test_a_base_model_loads_and_says_how_to_chat(base):
    text = ChatText.load(base)
    assert not text.chats
    assert text.encode_text("Once upon a time")
    assert (text.thinking, text.stop_texts) == ((), ())
    with pytest.raises(InvalidRequest, match=r"/v1/completions.*--chat-template .*chatml.*file"):
        text.prompt([Message("user", "hello")])


@pytest.mark.parametrize("way", ["name", "file"])
def test_a_person_can_give_it_a_template(base, tmp_path, way):
    (tmp_path / "t.jinja").write_text(template_source("alpaca"))
    text = ChatText.load(base, "alpaca" if way == "name" else str(tmp_path / "t.jinja"))
    assert text.chats
    assert text.borrows
    assert text.prompt([Message("user", "hello")]).ids


def test_a_template_of_its_own_stays(base, tmp_path):
    assert not ChatText.load(POCKET, "alpaca").borrows
    (base / "chat_template.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    assert ChatText.load(base).chats


@pytest.mark.parametrize("source", ["{% if %}", "{{ 1 | no_filter }}", "{{ 'a' * 10 ** 10 }}"])
@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_broken_one_is_replaced_by_a_persons(base, tmp_path, kind, source):
    """There was no way to use such a model."""
    place = base if kind == "folder" else tmp_path / "m.gguf"
    if kind == "folder":
        (base / "chat_template.jinja").write_text(source)
    else:
        pytest.importorskip("llama_cpp")
        pairs = [*tiny.metadata()[:-1], tiny.pair("tokenizer.chat_template", tiny.STRING, source)]
        tiny.write(place, tiny.with_weights(pairs, tiny.shapes(), 0.25))
    with pytest.raises(ModelUnusable, match="; give another one with --chat-template"):
        ChatText.load(place)
    text = ChatText.load(place, "chatml")
    assert text.borrows
    assert text.prompt([Message("user", "hello")]).ids


@pytest.mark.parametrize("name", ["nothing", "/nowhere/t.jinja", ""])
def test_a_template_that_is_none_is_refused_with_the_names(name):
    with pytest.raises(SettingsError, match="choose chatml, llama2"):
        template_source(name)


def test_a_conversation_of_a_base_model_is_one_text():
    said = [Message("user", "Once upon"), Message("assistant", " a time"), Message("user", "Then")]
    assert document(said) == "Once upon a time\nThen"
    assert document([]) == ""


END = "{% for m in messages %}{{ m.role }}\n{{ m.content }}END{% endfor %}"
CONTROL = ["<eos>", "<|im_end|>", "<|user|>"]


@pytest.mark.parametrize(
    ("end", "tokens", "texts"),
    [
        ("<|im_end|>\n", {0, 1}, ()),  # the configs only know <eos>
        ("\n<|im_end|>", {0, 1}, ()),
        ("<|user|>", {0, 2}, ()),  # the next turn begins, and nothing ended this one
        ("<eos>", {0}, ()),
        ("\n\n### Instruction:\n", {0}, ("### Instruction:",)),
        ("\n", {0}, ()),
    ],
)
def test_a_turn_ends_where_the_template_ends_it(end, tokens, texts):
    """Only the configs were believed: an answer continued with "user ..."."""
    vocabulary = FolderVocabulary(byte_level(CONTROL, ["user hello"]))
    text = ChatText(vocabulary, ChatTemplate(END.replace("END", end), {}), {0})
    assert (text.stop_tokens, text.stop_texts) == (tokens, texts)


@pytest.mark.parametrize("text", ["\ud800", {"content": "\udfff"}, 3, None])
def test_an_end_that_is_no_text_is_none(base, text):
    (base / "tokenizer_config.json").write_text(json.dumps({"eos_token": text}))
    assert ChatText.load(base).encode_text("Once")


def test_a_template_that_refuses_a_question_tells_no_end():
    vocabulary = FolderVocabulary(byte_level(CONTROL, ["user hello"]))
    text = ChatText(vocabulary, ChatTemplate("{{ raise_exception('no') }}", {}), {0})
    assert (text.stop_tokens, text.stop_texts) == ({0}, ())
