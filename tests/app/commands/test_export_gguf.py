"""export-gguf as a person meets it: files that are the same model, and every mistake one sentence."""

import json
import shutil
from collections import namedtuple
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from app.commands import export_gguf
from app.commands.main import main
from app.models.gguf_check import check_gguf
from app.request import Message
from app.settings import Settings
from app.text.chat_text import ChatText
from engine.models.gguf.header import TYPES, read_header
from engine.models.gguf.library import llama_library
from engine.models.own.target import load_target
from engine.speculation.tree import chain
from tests.app.conftest import no_page

llama_cpp = pytest.importorskip("llama_cpp.llama_cpp")
pytest.importorskip("gguf")

POCKET = Path(__file__).parents[3] / "engine" / "bundled" / "pocket"
TEXT = ChatText.load(POCKET)
SPECIALS = ("<|bos|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|pad|>")
PROMPTS = (
    "Sort: pear, apple, fig", "Rename x to total: x = x + 1", "What is 17 + 25?",
    "Repeat: the quick brown fox", "Ann has 3 apples and buys 12 more. How many has she?",
    "def add(a, b):", "Convert 3 km to m", "Name: Ada; city: Turin. Give JSON.",
)  # fmt: skip
TOKENS = 24

# llama.cpp isolates every number sign, the tokenizer only decimal digits, so fractions and the like
# may be cut elsewhere.
written = st.text(st.characters(exclude_categories=["Cs", "No", "Nl"]), max_size=40)


def asked(out: Path, kind: str = "f32", model: Path | str = "pocket") -> list[str]:
    return ["export-gguf", "--model", str(model), "--type", kind, "--out", str(out)]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Callable[[str], Path]:
    """Pocket as a GGUF file of a type; each is made once."""
    folder = tmp_path_factory.mktemp("made")

    def make(kind: str) -> Path:
        out = folder / f"pocket-{kind}.gguf"
        if not out.exists():
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("SLIPSTREAM_HOME", str(folder / "home"))
                assert main(asked(out, kind), no_page) == 0
        return out

    return make


class Reference:
    """llama.cpp alone, greedy, one token a pass."""

    def __init__(self, file: Path) -> None:
        self._model = llama_cpp.llama_model_load_from_file(
            str(file).encode(), llama_library().model_parameters()
        )
        assert self._model

    def greedy(self, prompt: Sequence[int], tokens: int = TOKENS) -> list[int]:
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx, parameters.n_threads, parameters.type_k = 512, 1, 0
        parameters.type_v, parameters.flash_attn_type = 0, 0
        context = llama_cpp.llama_init_from_model(self._model, parameters)
        ids, fed = list(prompt), 0
        for _ in range(tokens):
            row = (llama_cpp.llama_token * (len(ids) - fed))(*ids[fed:])
            assert (
                llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(row, len(row))) == 0
            )
            logits = llama_cpp.llama_get_logits_ith(context, -1)
            fed = len(ids)
            ids.append(max(range(4096), key=logits.__getitem__))
        llama_cpp.llama_free(context)
        return ids[len(prompt) :]

    def close(self) -> None:
        llama_cpp.llama_model_free(self._model)


def alike(small: Path, full: Path) -> float:
    """The share of prompts to which both files give the same first four tokens."""
    readers = Reference(small), Reference(full)
    prompts = [TEXT.encode_chat([Message("user", prompt)]) for prompt in PROMPTS]
    same = [readers[0].greedy(prompt, 4) == readers[1].greedy(prompt, 4) for prompt in prompts]
    for reader in readers:
        reader.close()
    return sum(same) / len(same)


def plain(target, prompt: Sequence[int]) -> list[int]:
    target.crop(0, 0)
    target.feed(0, prompt[:-1])
    ids = list(prompt)
    for _ in range(TOKENS):
        (scores,) = target.score([0], [chain([ids[-1]])])
        target.commit(0, [0])
        ids.append(int(scores.logits[0].argmax()))
    return ids[len(prompt) :]


class TestTheSameModel:
    def test_float32_gives_the_same_greedy_tokens(self, made):
        reference = Reference(made("f32"))
        target = load_target(POCKET, "float32", "cpu")
        for prompt in PROMPTS:
            ids = TEXT.encode_chat([Message("user", prompt)])
            assert reference.greedy(ids) == plain(target, ids), prompt
        reference.close()

    def test_bfloat16_holds_the_checkpoints_own_bits(self, made):
        from safetensors.torch import load_file

        header = read_header(made("bf16"))
        tensor = next(t for t in header.tensors if t.name == "blk.3.ffn_down.weight")
        assert TYPES[tensor.type][0] == "bf16"
        data = made("bf16").read_bytes()[header.data_start + tensor.offset :][: tensor.bytes]
        ours = load_file(POCKET / "model.safetensors")["model.layers.3.mlp.down_proj.weight"]
        assert data == ours.contiguous().view(torch.uint8).numpy().tobytes()

    @pytest.mark.parametrize(("kind", "least"), [("q8_0", 0.95), ("q4_k_m", 0.5)])
    def test_smaller_types_answer_nearly_alike(self, made, kind, least, tmp_path):
        check_gguf(Settings(home=tmp_path), made(kind))
        assert made(kind).stat().st_size < made("bf16").stat().st_size * 0.6
        halves = torch.ones(64, 64, dtype=torch.bfloat16)
        halves @ halves  # torch sets up AMX's tiles for itself, and llama.cpp sets them up again
        assert alike(made(kind), made("f32")) >= least - 0.1


@pytest.fixture(scope="module")
def text(made) -> ChatText:
    return ChatText.load(made("f32"))


class TestTheSameText:
    def test_conversations_are_encoded_alike(self, text):
        messages = st.builds(Message, st.sampled_from(["system", "user", "assistant"]), written)

        @given(st.lists(messages, min_size=1, max_size=3))
        def law(conversation: list[Message]) -> None:
            assert text.encode_chat(conversation) == TEXT.encode_chat(conversation)

        law()

    def test_typed_control_tokens_are_text(self, text):
        pieces = st.one_of(written, st.sampled_from([*SPECIALS, "<|", "|>", "end"]))

        @given(st.lists(pieces, max_size=6).map("".join))
        def law(typed: str) -> None:
            ids = text.encode_chat([Message("user", typed)])
            assert [token for token in ids if token < 6] == [0, 2, 4, 3]
            assert text.decode(ids[2:-2]) == typed

        law()

    def test_tokens_have_the_same_bytes(self, text):
        assert all(text.token_bytes(n) == TEXT.token_bytes(n) for n in range(4100))

    def test_answers_end_at_the_same_tokens(self, text):
        assert TEXT.stop_tokens <= text.stop_tokens <= set(range(6))


class TestMistakes:
    @pytest.fixture
    def out(self, tmp_path: Path) -> Path:
        return tmp_path / "a.gguf"

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"--type": "q3"}, "invalid choice: 'q3'"),
            ({"--model": "nobody"}, "there is no model named 'nobody'"),
            ({"--out": "/nowhere/a.gguf"}, "there is no folder"),
            ({"--out": "a.bin"}, "must end in .gguf"),
        ],
    )
    def test_a_wrong_argument_is_one_sentence(self, refused, out, changes, says):
        options = {"--model": "pocket", "--type": "f32", "--out": str(out)} | changes
        assert says in refused("export-gguf", *sum(options.items(), ()))

    def test_a_file_that_is_there_already(self, refused, out):
        out.write_text("precious")
        assert "exists already; remove it or give another name" in refused(*asked(out))
        assert out.read_text() == "precious"

    def test_a_disk_that_is_too_small(self, refused, out, monkeypatch):
        usage = namedtuple("usage", "total used free")
        monkeypatch.setattr(export_gguf.shutil, "disk_usage", lambda place: usage(0, 0, 10**6))
        err = refused(*asked(out, kind="q8_0"))
        assert "making it needs" in err
        assert " free; free some" in err

    def test_a_disk_that_fills_up_keeps_no_file(self, refused, home, out, monkeypatch):
        def full(*arguments):
            raise OSError(28, "No space left on device")
            yield

        monkeypatch.setattr(export_gguf, "write_gguf", full)
        err = refused(*asked(out))
        assert "cannot be written to" in err
        assert "No space left on device" in err
        assert [found.name for found in out.parent.iterdir() if found != home] == []

    def test_a_model_that_is_gguf_already(self, refused, made, out):
        assert "is a GGUF file already" in refused(*asked(out, model=made("f32")))

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"model_type": "phi3"}, "the family 'phi3' cannot be exported"),
            ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "scaling 'yarn'"),
        ],
    )
    def test_a_model_that_cannot_be_written(self, refused, tmp_path, out, changes, says):
        folder = Path(shutil.copytree(POCKET, tmp_path / "model"))
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | changes))
        assert says in refused(*asked(out, model=folder))
