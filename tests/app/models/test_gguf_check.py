"""New GGUF files: tried once, away from the app, and never the app's end."""

import shutil
from pathlib import Path

import pytest

from app.models import gguf_check
from app.models.catalog import resolve
from app.models.gguf_check import check_gguf, gguf_file
from app.settings import Settings
from engine.errors import ModelUnusable
from tests.engine.models.gguf import tiny
from tests.engine.models.gguf.test_header import HEADERS

pytest.importorskip("llama_cpp")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home")


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Every file that is tried from here on."""
    seen: list[Path] = []
    real = gguf_check._tried

    def tried(file: Path, parts) -> str:
        seen.append(file)
        return real(file, parts)

    monkeypatch.setattr(gguf_check, "_tried", tried)
    return seen


class TestOnce:
    def test_a_good_file_is_tried_once(self, settings, tmp_path, tries):
        file = tiny.write(tmp_path / "m.gguf")
        for _ in range(3):
            check_gguf(settings, file)
        assert tries == [file]

    def test_a_changed_file_is_tried_again(self, settings, tmp_path, tries):
        file = tiny.write(tmp_path / "m.gguf")
        check_gguf(settings, file)
        tiny.write(file, tiny.damaged()["weights not finite"])
        for _ in range(2):
            with pytest.raises(ModelUnusable, match=r"m\.gguf cannot be used: .*; get the file"):
                check_gguf(settings, file)
        assert len(tries) == 2

    def test_a_copy_under_the_same_conditions_needs_no_try(self, settings, tmp_path, tries):
        file = tiny.write(tmp_path / "m.gguf")
        check_gguf(settings, file)
        check_gguf(settings, Path(shutil.copy2(file, tmp_path / "copy.gguf")))
        assert tries == [file]

    def test_a_known_file_is_not_even_read_as_gguf(self, settings, tmp_path, monkeypatch):
        """A header of 300,000 words takes half a second."""
        file = tiny.write(tmp_path / "m.gguf")
        check_gguf(settings, file)
        monkeypatch.setattr(gguf_check, "read_parts", None)
        check_gguf(settings, file)

    def test_a_damaged_record_costs_one_more_try(self, settings, tmp_path, tries):
        file = tiny.write(tmp_path / "m.gguf")
        for content in ("{", "[1]", '{"a": 1}', "[" * 100_000):
            settings.home.mkdir(exist_ok=True)
            (settings.home / gguf_check.RECORD).write_text(content)
            check_gguf(settings, file)
        assert len(tries) == 4

    @pytest.mark.parametrize("place", ["checked-gguf.json", "checked-gguf.json.new", ""])
    def test_a_record_that_cannot_be_written_costs_one_more_try(
        self, settings, tmp_path, tries, place
    ):
        """On a full disk, or one that cannot be written, a good file was refused."""
        if place:
            (settings.home / place).mkdir(parents=True)
        else:
            settings.home.touch()
        file = tiny.write(tmp_path / "m.gguf")
        for _ in range(2):
            check_gguf(settings, file)
        assert len(tries) == 2


class TestFaults:
    def test_a_crash_is_a_sentence(self, settings, tmp_path, monkeypatch):
        monkeypatch.setattr(gguf_check, "check_consistent", lambda parts: None)
        file = tiny.write(tmp_path / "m.gguf", tiny.damaged()["layers 2^31-1"])
        with pytest.raises(ModelUnusable, match="llama.cpp breaks .*signal 6.*get the file again"):
            check_gguf(settings, file)

    @pytest.mark.parametrize("kind", ["none", "no_vocab"])
    def test_a_file_without_a_tokenizer_does_not_end_the_app(self, settings, tmp_path, kind):
        """The first text did: llama.cpp has no answer to it but to end the process."""
        named = tiny.pair("tokenizer.ggml.model", tiny.STRING, kind)
        pairs = [named if b"tokenizer.ggml.model" in one[:40] else one for one in tiny.metadata()]
        file = tiny.write(tmp_path / "m.gguf", tiny.with_weights(pairs, tiny.shapes(), 0.25))
        with pytest.raises(ModelUnusable, match="cannot be used: .*(no tokenizer|cannot load it)"):
            check_gguf(settings, file)

    def test_lack_of_memory_is_not_held_against_the_file(
        self, settings, tmp_path, monkeypatch, tries
    ):
        file = tiny.write(tmp_path / "m.gguf")
        monkeypatch.setattr(gguf_check, "_try", _greedy)
        with pytest.raises(ModelUnusable, match="needed more than .* MiB of memory; close other"):
            check_gguf(settings, file)
        monkeypatch.undo()
        check_gguf(settings, file)

    def test_a_try_that_hangs_ends(self, settings, tmp_path, monkeypatch):
        monkeypatch.setattr(gguf_check, "_try", _idle)
        monkeypatch.setattr(gguf_check, "BASE_SECONDS", 1.0)
        with pytest.raises(ModelUnusable, match="took more than 1.* seconds; close other"):
            check_gguf(settings, tiny.write(tmp_path / "m.gguf"))


class TestAsAPersonAddsThem:
    """``models import FILE`` and ``--model FILE``: one sentence and exit code 2, whatever the file."""

    @pytest.mark.parametrize("name", sorted(tiny.damaged()))
    def test_damaged_models(self, name, home, slipstream, refused, tmp_path):
        file = tiny.write(tmp_path / "m.gguf", tiny.damaged()[name])
        code, _, said = slipstream("models", "import", str(file))
        if code == 0:  # what llama.cpp ignores is no damage
            assert name.startswith("flips") or name == "other vocabulary"
            return
        assert code == 2
        for sentence in (said, refused("ask", "a", "--model", str(file))):
            assert sentence.startswith("slipstream: ")
            assert sentence.count("\n") == 1
            assert str(file) in sentence
        assert not (home / "models" / "m").exists()

    @pytest.mark.parametrize("name", HEADERS)
    def test_headers_that_are_wrong_by_themselves(self, name, refused, tmp_path):
        data, says = HEADERS[name]
        file = tiny.write(tmp_path / "m.gguf", data)
        for argv in (["models", "import", str(file)], ["ask", "a", "--model", str(file)]):
            said = refused(*argv)
            assert said.startswith("slipstream: ")
            assert says in said

    def test_an_import_and_the_load_after_it_need_one_try(self, home, slipstream, tmp_path, tries):
        file = tiny.write(tmp_path / "m.gguf")
        assert slipstream("models", "import", str(file))[::2] == (0, "")
        settings = Settings(home=home)
        assert resolve(settings, "m").backend == "llama_cpp"
        assert resolve(settings, str(file)).folder == str(file)
        assert tries == [file]

    def test_a_blob_under_its_digest_is_a_model(self, home, slipstream, tmp_path):
        blob = tiny.write(tmp_path / "sha256-0123")
        argv = ("models", "import", str(blob), "--name", "b", "--reference")
        assert slipstream(*argv)[::2] == (0, "")
        spec = resolve(Settings(home=home), "b")
        assert (spec.backend, spec.folder) == ("llama_cpp", str(blob))

    def test_answers_come_from_a_good_file(self, slipstream, tmp_path):
        """Its random weights may say anything, within the limit."""
        file = tiny.write(tmp_path / "m.gguf")
        code, out, _ = slipstream("models", "import", str(file))
        assert code == 0
        assert "m is ready: slipstream --model m" in out
        assert slipstream("ask", "a", "--model", "m", "--max-tokens", "4")[0] == 0


class TestChoosing:
    def test_a_folder_with_one_model(self, settings, tmp_path):
        file = tiny.write(tmp_path / "m.gguf")
        tiny.write(tmp_path / "mmproj-m.gguf")
        for place in (file, tmp_path):
            spec = resolve(settings, str(place))
            assert (spec.backend, spec.folder) == ("llama_cpp", str(file))

    def test_a_split_model_is_one(self, tmp_path):
        names = [f"m-0000{part}-of-00003.gguf" for part in (1, 2, 3)]
        for name in names:
            (tmp_path / name).write_bytes(b"GGUF")
        assert gguf_file(tmp_path) == tmp_path / names[0]

    def test_several_models_are_a_question(self, tmp_path):
        for name in ("a.gguf", "b.gguf"):
            (tmp_path / name).write_bytes(b"GGUF")
        with pytest.raises(
            ModelUnusable, match=r"2 GGUF models; give the path of one, such as .*a"
        ):
            gguf_file(tmp_path)

    def test_a_file_of_another_name_is_known_by_its_first_bytes(self, tmp_path):
        blob = tmp_path / "sha256-0123"
        blob.write_bytes(b"GGUF")
        assert gguf_file(blob) == blob
        blob.write_bytes(b"else")
        assert gguf_file(blob) is None


def _greedy(connection, file: str) -> None:
    bytearray(64 << 30)


def _idle(connection, file: str) -> None:
    connection.poll(60)
