"""``slipstream models`` as a person types it: a real process against a hub on real sockets."""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from app.models.downloads.staging import Space
from app.settings import Settings
from tests.app.models.downloads.hub import Fixed, Repo, StandInHub, model_files
from tests.app.models.library.places import POCKET, gguf, ollama
from tests.app.row_tables import remember
from tests.engine.models.gguf import tiny as tiny_gguf

ROOT = Path(__file__).parents[3]
COMMAND = "import sys; from app.commands.main import main; sys.exit(main(None, lambda options: 0))"
MIB = 1 << 20
DRAFT, TARGET = "HuggingFaceTB/SmolLM2-135M-Instruct", "HuggingFaceTB/SmolLM2-360M-Instruct"


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[StandInHub]:
    repos = {
        "org/tiny": Repo(model_files(1, MIB)),
        DRAFT: Repo(model_files(2, MIB)),
        TARGET: Repo(model_files(3, 2 * MIB)),
    }
    for name in ("HF_HUB_CACHE", "LMSTUDIO_MODELS", "OLLAMA_MODELS"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with StandInHub(repos).running() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


@pytest.fixture
def models(slipstream, stand_in: StandInHub) -> Callable[..., tuple[int, str, str]]:
    """Runs one action here; returns the exit code, the output and the errors."""
    return partial(slipstream, "models")


def start(*arguments: str, **pipes) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", COMMAND, "models", *arguments], cwd=ROOT, text=True, **pipes)  # fmt: skip


def wait_for_bytes(stand_in: StandInHub, count: int) -> None:
    end = time.monotonic() + 20
    while sum(stand_in.sent.values()) < count:
        assert time.monotonic() < end, "nothing was downloaded"
        time.sleep(0.01)


# --- pull -----------------------------------------------------------------------------------------


def test_one_command_gets_a_model_and_its_draft(models, home):
    code, out, err = models("pull", "smollm2-360m-instruct")
    assert (code, err) == (0, "")
    assert "smollm2-360m-instruct: 3 files of HuggingFaceTB/SmolLM2-360M-Instruct, 2.0 MiB" in out
    assert out.count("is ready: slipstream --model smollm2") == 2
    for name in ("smollm2-360m-instruct", "smollm2-135m-instruct"):
        assert (home / "models" / name / "model.safetensors").exists()
    assert models("pull", "smollm2-360m-instruct")[0] == 2


def test_the_draft_can_be_left_out_and_fetched_later(models, home):
    assert models("pull", "smollm2-360m-instruct", "--no-draft")[0] == 0
    assert not (home / "models" / "smollm2-135m-instruct").exists()
    code, out, _ = models("pull", "smollm2-360m-instruct")
    assert (code, out.count("is ready")) == (0, 1)
    assert (home / "models" / "smollm2-135m-instruct").exists()


def test_any_repository_and_one_file_of_it(models, home, stand_in):
    stand_in.repos["org/m-GGUF"] = Repo({f"m-{kind}.gguf": Fixed(b"GGUF" + kind.encode()) for kind in ("Q4_K_M", "Q8_0")})  # fmt: skip
    assert models("pull", "org/tiny")[0] == 0
    assert models("pull", "org/m-GGUF", "--file", "*Q8_0*")[0] == 0
    assert (home / "models" / "m-Q8_0" / "m-Q8_0.gguf").read_bytes() == b"GGUFQ8_0"
    assert models("pull", "org/m-GGUF")[0] == 0
    assert {"tiny", "m-Q8_0", "m-Q4_K_M"} <= {path.name for path in (home / "models").iterdir()}
    code, out, _ = models("list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()][:2] == ["pocket", "pocket-draft"]
    assert "m-Q8_0" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pull", "nobody"], "there is no model named 'nobody'"),
        (["pull", "../etc/passwd"], "there is no model named"),
        (["pull", "pocket"], "pocket is on this machine already"),
        (["pull", "org/none"], "has no repository org/none"),
        (["pull", "org/tiny", "--file", "*.gguf"], "org/tiny has no file *.gguf; it has"),
        (["rm", "nobody"], "there is no model named 'nobody'"),
        (["rm", "pocket"], "pocket comes with Slipstream"),
        (["import", "/nowhere"], "there is no file or folder /nowhere"),
        (["dance"], "invalid choice: 'dance'"),
        ([], "the following arguments are required: search|pull|list|rm|import|token"),
        (["search", "x", "--limit", "0"], "'0' is not a whole number from 1 to 100"),
        (["import", "x", "--copy", "--reference"], "not allowed with argument"),
    ],
)
def test_a_mistake_is_one_line(stand_in, refused, arguments, said):
    assert said in refused("models", *arguments)


def test_a_gated_model_and_the_token(models, home, stand_in, monkeypatch):
    stand_in.repos["org/tiny"].gated = True
    code, _, err = models("pull", "org/tiny")
    assert code == 1
    assert f"org/tiny is gated; open {stand_in.url}/org/tiny, accept the terms" in err
    with start("token", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        out, _ = process.communicate("hf_secret\n")
    assert "readable by you only" in out
    assert (home / "hub-token").stat().st_mode & 0o777 == 0o600
    code, out, err = models("pull", "org/tiny")
    assert code == 0, err
    said = out + err + "".join(file.read_text() for file in (home / "logs").iterdir())
    assert "hf_secret" not in said
    assert {request.authorization for request in stand_in.fetched()} == {None}


def test_a_full_disk_is_reported_before_the_first_byte(models, stand_in, monkeypatch):
    small = partial(Space, free=lambda folder: 1_000_000)
    monkeypatch.setattr("app.models.downloads.queue.Space", small)
    code, _, err = models("pull", "org/tiny")
    assert code == 1
    assert "tiny needs 1.0 MiB more and 512.0 MiB stay free, but" in err
    assert stand_in.fetched() == []


def test_without_a_network_there_is_one_sentence(models, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    for arguments in (["pull", "org/tiny"], ["search", "x"]):
        code, _, err = models(*arguments)
        assert code == 1
        assert "127.0.0.1 cannot be reached" in err
        assert len(err.splitlines()) == 1
    assert models("list")[0] == 0


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_an_interrupted_pull_continues_where_it_was(models, home, stand_in, how, code):
    stand_in.rate = MIB
    with start("pull", "org/tiny", stderr=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        wait_for_bytes(stand_in, 300_000)
        process.send_signal(how)
        _, err = process.communicate(timeout=20)
    assert process.returncode == code
    assert err.count("\n") == (1 if how is signal.SIGINT else 0), err
    assert "resume with: slipstream models pull tiny" in models("list")[1]
    stand_in.rate = 0
    assert models("pull", "tiny")[0] == 0
    assert sum(stand_in.sent.values()) < 1.2 * MIB
    assert stand_in.fetched()[-1].range is not None


@pytest.mark.parametrize("begun", [True, False])
def test_an_interrupted_pull_brings_its_draft_too(models, home, stand_in, begun):
    stand_in.rate = MIB
    with start("pull", "smollm2-360m-instruct", *([] if begun else ["--no-draft"])) as process:
        wait_for_bytes(stand_in, 300_000)
        process.kill()
    stand_in.rate = 0
    code, out, _ = models("pull", "smollm2-360m-instruct")
    assert (code, out.count("is ready")) == (0, 2)


def test_two_processes_fetch_one_model_once(models, home, stand_in):
    stand_in.rate = MIB / 3  # both are there before the first one is done
    first, second = (start("pull", "org/tiny", stdout=subprocess.PIPE) for _ in range(2))
    assert "tiny is ready" in first.communicate(timeout=60)[0]
    assert "tiny is ready" in second.communicate(timeout=60)[0]
    assert (first.returncode, second.returncode) == (0, 0)
    assert stand_in.sent["org/tiny/model.safetensors"] == MIB


def test_a_terminal_shows_bars_with_speed(home, stand_in):
    stand_in.rate = MIB
    leader, follower = pty.openpty()
    with start("pull", "org/tiny", stderr=follower, stdout=subprocess.DEVNULL) as process:
        os.close(follower)
        shown = b""
        while piece := read_terminal(leader):
            shown += piece
        assert process.wait(30) == 0
    os.close(leader)
    assert b"tiny" in shown
    assert b"B/s" in shown
    assert b"1.0/1.0 MiB" in shown


def read_terminal(leader: int) -> bytes:
    try:
        return os.read(leader, 4096)
    except OSError:  # Linux's way to say that nobody writes any more
        return b""


# --- search, list, rm, import ---------------------------------------------------------------------


def test_search_shows_the_catalogue_first_and_then_the_hub(models, stand_in):
    stand_in.rows = [{"id": "org/qwen-small", "tags": ["safetensors", "license:mit"], "downloads": 7,
                      "gated": "auto", "safetensors": {"parameters": {"BF16": 500_000}}}]  # fmt: skip
    code, out, _ = models("search", "QWEN3", "14b")
    lines = out.splitlines()
    assert code == 0
    assert [line.split()[0] for line in lines] == ["qwen3-14b", "qwen3-14b-q4", "org/qwen-small"]
    assert "976.6 KiB  7 downloads (mit, gated)" in lines[-1]
    stand_in.rows = []
    assert "has no text model that matches 'zzz'" in models("search", "zzz")[2]


@pytest.mark.parametrize(
    "asked", [("list",), ("list", "--available"), ("search", "qwen3")], ids=" ".join
)
def test_lists_are_json_where_asked(models, stand_in, asked):
    stand_in.rows = []
    code, out, _ = models(*asked, "--json")
    rows = json.loads(out)
    assert code == 0
    assert len(out.splitlines()) == 1
    assert all((row["name"] and row["bytes"] is None) or row["bytes"] >= 0 for row in rows)
    assert [row["name"] for row in rows if row["ready"]] == (
        ["pocket", "pocket-draft"] if asked == ("list",) else []
    )


def test_what_could_be_downloaded_says_its_size_licence_and_why(models, stand_in):
    code, out, _ = models("list", "--available")
    assert code == 0
    assert out.count("\n") >= 50
    assert "layerskip-llama3.2-1b" in out
    assert "(not an open licence: research only), gated)" in out
    assert stand_in.requests == [], "the list is here"


def test_the_list_says_which_type_of_a_file_is_faster_once_that_was_measured(models, home):
    pytest.importorskip("llama_cpp")
    assert models("list", "--available")[2].endswith(
        "slipstream doctor --types does that in a minute.\n"
    )
    remember(Settings(home=home))
    out = models("list", "--available")[1]
    assert "The same repository has it as phi-4-Q4_0.gguf." in out
    assert "not measured" not in out


def test_what_a_killed_import_left_is_listed_and_removed(models, home):
    files = home / "models" / ".incomplete" / "half" / "files"
    files.mkdir(parents=True)
    (files / "model.safetensors.part").write_bytes(bytes(5000))
    line = next(line for line in models("list")[1].splitlines() if line.startswith("half"))
    assert (
        "4.9 KiB  of an import that was stopped; remove it with: slipstream models rm half" in line
    )
    assert models("rm", "half") == (0, "half is removed; 4.9 KiB are free again.\n", "")
    assert "half" not in models("list")[1]


def test_a_model_of_another_program_is_offered_imported_and_removed(models, home, tmp_path):
    pytest.importorskip("llama_cpp")  # which tries a new file
    name = "registry.ollama.ai/library/llama3.2/1b"
    ollama(tmp_path / "OLLAMA_MODELS", name, content=tiny_gguf.whole())
    gguf(tmp_path / "LMSTUDIO_MODELS" / "org" / "repo" / "m-Q4_K_M.gguf")
    out = models("list")[1]
    assert "m-Q4_K_M" in out
    offer = next(line for line in out.splitlines() if "in Ollama" in line)
    words = offer.partition("slipstream models ")[2].split()
    assert models(*words)[:2] == (0, "llama3.2-1b is ready: slipstream --model llama3.2-1b\n")
    assert "in Ollama" not in models("list")[1]
    code, out, _ = models("rm", "llama3.2-1b")
    assert (code, out.split(";")[0]) == (0, "llama3.2-1b is removed")
    assert "in Ollama" in models("list")[1]


def test_the_ways_of_import(models, home, tmp_path):
    source = shutil.copytree(POCKET, tmp_path / "mine")
    assert models("import", str(source))[0] == 0
    assert models("import", str(source), "--name", "c", "--copy")[0] == 0
    assert models("import", str(source), "--name", "r", "--reference")[0] == 0
    assert f"used at {source}" in models("list")[1]
    assert json.loads((home / "models" / "r" / "slipstream.json").read_text())["reference"]
