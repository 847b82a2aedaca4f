"""Models of a person's own, from a path to an answer: families of transformers, GGUF files, formats."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

POCKET = Path(__file__).parents[3] / "engine" / "bundled" / "pocket"
QUESTION = "What is 17 + 25?"
NARROW = {"vocab_size": 4096, "hidden_size": 32, "num_hidden_layers": 2}
FAMILIES = {
    "gpt_neox": transformers.GPTNeoXConfig(
        **NARROW, num_attention_heads=2, intermediate_size=48, max_position_embeddings=256
    ),
    "mamba": transformers.MambaConfig(**NARROW, state_size=4),
    "minimax": transformers.MiniMaxConfig(  # its state is in a cache of its own kind
        **NARROW, num_attention_heads=2, num_key_value_heads=1, intermediate_size=48, head_dim=16,
        max_position_embeddings=256, num_local_experts=2, num_experts_per_tok=1, block_size=8,
        layer_types=["linear_attention", "full_attention"],
    ),
    "bloom": transformers.BloomConfig(vocab_size=4096, hidden_size=32, n_layer=2, n_head=2),
    "llama": transformers.LlamaConfig(
        **NARROW, num_attention_heads=2, intermediate_size=48, max_position_embeddings=256
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Callable[[str], Path]:
    """A random model of a family, with pocket's tokenizer and template; each is made once."""
    made: dict[str, Path] = {}

    def make(family: str) -> Path:
        if family not in made:
            place = tmp_path_factory.mktemp("models") / family
            torch.manual_seed(0)
            transformers.AutoModelForCausalLM.from_config(FAMILIES[family]).save_pretrained(place)
            for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
                shutil.copy(POCKET / name, place)
            made[family] = place
        return made[family]

    return make


@pytest.fixture(scope="module")
def gguf(tmp_path_factory) -> Path:
    """Pocket as a GGUF file."""
    pytest.importorskip("llama_cpp")
    from tests.engine.models.gguf.files import exported

    return exported(POCKET, tmp_path_factory.mktemp("gguf") / "pocket.gguf")


@pytest.fixture
def prompts(tmp_path) -> Path:
    file = tmp_path / "prompts.jsonl"
    texts = (QUESTION, "Repeat: the quick brown fox jumps", "Sort: pear, apple, fig")
    file.write_text("".join(json.dumps({"turns": [text]}) + "\n" for text in texts))
    return file


@pytest.fixture
def ask(slipstream) -> Callable[..., tuple[int, dict, str]]:
    """Exit code, the line of JSON, standard error."""

    def asked(model: object, *options: str) -> tuple[int, dict, str]:
        asking = ("ask", QUESTION, "--model", str(model), "--max-tokens", "16", "--json")
        code, out, err = slipstream(*asking, *options)
        return code, json.loads(out.splitlines()[-1]) if out else {}, err

    return asked


class TestFamiliesOfTransformers:
    @pytest.mark.parametrize("family", ["gpt_neox", "mamba"])
    def test_a_folder_answers(self, ask, folder, family):
        code, said, notes = ask(folder(family))
        assert code == 0
        assert notes == "" or family != "gpt_neox"  # which is drafted for in every way
        assert said["finish_reason"] in ("length", "stop")
        assert len(said["token_ids"]) == 16 or said["finish_reason"] == "stop"

    def test_drafting_changes_nothing(self, ask, folder):
        plain, drafted = (
            ask(folder("gpt_neox"), "--draft", name, "--temperature", "0")[1]
            for name in ("none", "recycling")
        )
        assert plain["token_ids"] == drafted["token_ids"]
        assert drafted["drafter"] == "recycling"

    def test_one_that_nothing_drafts_for_says_why(self, ask, folder):
        *_, said = ask(folder("minimax"))
        assert (
            "nothing drafts for minimax: the layers of this family (minimax) keep a running" in said
        )

    def test_one_that_takes_no_trees_says_why(self, ask, folder):
        assert "drafts for bloom are chains, never trees: " in ask(folder("bloom"))[2]

    def test_eight_bits_are_refused_with_the_reason(self, refused, folder):
        asked = ("ask", QUESTION, "--model", str(folder("gpt_neox")), "--dtype", "int8")
        assert "which has no int8 weights here" in refused(*asked)

    def test_a_narrower_format_answers(self, ask, folder):
        assert ask(folder("gpt_neox"), "--dtype", "bfloat16")[0] == 0


def missing(folder: Path) -> None:
    _edit(folder, lambda tensors: tensors.pop("model.norm.weight"))


def surplus(folder: Path) -> None:
    _edit(folder, lambda tensors: tensors.update({"spare": torch.ones(2)}))


def outside(folder: Path) -> None:
    index = {"weight_map": {"a": "../outside.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def not_finite(folder: Path) -> None:
    _edit(folder, lambda tensors: tensors["model.norm.weight"].fill_(torch.nan))


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def _edit(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (missing, "the weights lack the tensor model.norm.weight; download the model again"),
        (surplus, "1 tensors have no place in this family, spare first"),
        (outside, "'../outside.safetensors' points outside the model's folder"),
        (not_finite, "give logits that are not finite numbers"),
        (pickled, "pytorch_model.bin, a format that can run code when it is opened"),
    ],
)
def test_a_damaged_folder_is_one_sentence(refused, folder, tmp_path, damage, says):
    copy = Path(shutil.copytree(folder("llama"), tmp_path / "copy"))
    damage(copy)
    assert says in refused("ask", QUESTION, "--model", str(copy))


class TestGguf:
    def test_a_file_answers_as_the_folder_that_it_was_made_of(self, ask, gguf):
        codes, said = zip(*(ask(place)[:2] for place in (gguf, POCKET)), strict=True)
        assert codes == (0, 0)
        assert said[0]["text"] == said[1]["text"]

    def test_every_drafter_is_verified(self, slipstream, gguf, prompts):
        argv = ["verify", "--model", str(gguf), "--prompts", str(prompts), "--max-tokens", "16"]
        code, out, _ = slipstream(*argv, "--draft", "all")
        assert code == 0
        assert "pocket.gguf, numbers as in the file, greedy" in out
        assert "early_exit cannot run with this model: " in out
        assert out.endswith("every token agrees\n")

    @pytest.mark.parametrize("command", ["ask", "verify", "bench"])
    def test_another_format_is_refused(self, refused, gguf, prompts, command):
        options = {
            "ask": [QUESTION],
            "verify": ["--prompts", str(prompts)],
            "bench": ["--prompts", str(prompts), "--lane", "lookup"],
        }[command]
        argv = [command, *options, "--model", str(gguf), "--dtype", "int8"]
        assert (
            "pocket.gguf is a GGUF file, whose number format is fixed; omit --dtype int8"
            in refused(*argv)
        )


class TestFormats:
    def test_eight_bits_answer_and_say_what_they_change(self, ask):
        code, said, notes = ask("pocket", "--dtype", "int8")
        assert code == 0
        assert said["token_ids"]
        assert "the weights are rounded to 8 bits" in notes

    @pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
    def test_full_formats_have_nothing_to_say(self, ask, dtype, monkeypatch):
        monkeypatch.setenv(
            "SLIPSTREAM_EXACT", "true"
        )  # some processors round wide passes unlike narrow
        code, _, notes = ask("pocket", "--dtype", dtype)
        assert (code, notes) == (0, "")

    def test_drafting_for_rounded_weights_is_verified(self, slipstream, prompts):
        argv = ["verify", "--prompts", str(prompts), "--max-tokens", "16", "--dtype", "int8"]
        code, out, _ = slipstream(*argv, "--draft", "lookup,early_exit,chain")
        assert code == 0
        assert out.startswith("pocket, int8, greedy")
        assert "rounded to 8 bits" in out
        assert out.endswith("every token agrees\n")


class TestBaseModels:
    """They were "ready", and then nothing worked."""

    @pytest.fixture
    def base(self, tmp_path) -> Path:
        pytest.importorskip("llama_cpp")
        from tests.engine.models.gguf import tiny

        pairs = [pair for pair in tiny.metadata() if b"chat_template" not in pair]
        return tiny.write(tmp_path / "base.gguf", tiny.with_weights(pairs, tiny.shapes(), 0.25))

    def test_a_file_loads_and_chat_asks_for_a_template(self, slipstream, ask, base):
        code, out, _ = slipstream("models", "import", str(base))
        assert (code, out) == (0, "base is ready: slipstream --model base\n")
        code, _, said = slipstream("ask", QUESTION, "--model", "base")
        assert code == 2
        assert "--chat-template and a name (chatml, " in said
        assert ask("base", "--chat-template", "alpaca")[0] == 0

    def test_a_folder_does_the_same(self, ask, refused, folder, tmp_path):
        place = shutil.copytree(folder("llama"), tmp_path / "base")
        (place / "chat_template.jinja").unlink()
        assert "this model has no chat template" in refused("ask", QUESTION, "--model", str(place))
        assert ask(place, "--chat-template", "vicuna")[0] == 0
