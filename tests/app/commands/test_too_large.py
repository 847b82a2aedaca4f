"""A model that seems too large: each place names the way round that it has itself."""

import io
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from app.commands.main import main
from app.commands.serve import ServeOptions
from app.models.catalog import resolve
from app.placement import plans
from app.worker.worker import EngineWorker
from engine.hardware.profile import Ram, imagined
from tests.app import fake_engine
from tests.app.conftest import no_page

FLAG, VARIABLE = "--load-anyway", "SLIPSTREAM_LOAD_ANYWAY=1"


@pytest.fixture
def fill(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From then on no model fits into the memory of this machine."""
    tiny = replace(imagined(0, 2**20), ram=Ram(2**20, 2**20))
    return partial(monkeypatch.setattr, plans, "known_profile", lambda settings: tiny)


@pytest.mark.parametrize(
    ("arguments", "way"),
    [
        (["ask", "Hi"], FLAG),
        (["chat"], FLAG),
        (["bench", "--lane", "auto", "--prompts", "p.jsonl"], VARIABLE),
        (["verify", "--prompts", "p.jsonl"], VARIABLE),
    ],
)
def test_a_command_names_its_own_way(arguments, way, fill, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.jsonl").write_text('{"turns": ["Hi"]}\n')
    fill()
    said = refused(*arguments, "--model", "pocket")
    assert "pocket needs" in said
    assert said.endswith(f"; {way} loads it all the same\n")
    assert "tab" not in said  # of a page that is not open


def test_the_start_of_the_page_has_the_flag(fill, home, capsys):
    def page(options: ServeOptions) -> int:
        plans.place(options.settings, resolve(options.settings, options.model))
        return 0

    fill()
    assert main(["--model", "pocket"], page) == 2
    assert capsys.readouterr().err.endswith(f"; {FLAG} loads it all the same\n")
    assert main(["--model", "pocket", FLAG], page) == 0


def test_a_running_chat_says_how_to_start_it_again(fill, home, monkeypatch, capsys):
    class Typed(io.StringIO):
        def __next__(self) -> str:
            fill()
            return super().__next__()

    engine = partial(EngineWorker, entry=fake_engine.parrot)
    monkeypatch.setattr("app.chat.loaded_model.EngineWorker", engine)
    monkeypatch.setattr("sys.stdin", Typed("/model pocket-draft\nstill here\n"))
    assert main(["chat", "--model", "pocket"], no_page) == 0
    out, err = capsys.readouterr()
    assert "; slipstream chat --model pocket-draft --load-anyway loads it all the same" in err
    assert "still here" in out
