"""A chat template that a person chose for a base model is the same after a restart."""

import shutil

import pytest

from app.chat.assistant import Assistant
from app.chat.loader import NAME, ChosenTemplates
from app.settings import Settings
from tests.app.asynchronous import asynchronous
from tests.bundled import POCKET


@pytest.fixture
def templates(tmp_path):
    def opened():
        return ChosenTemplates(tmp_path)

    return opened


@pytest.mark.parametrize("name", ["chatml", "alpaca", ""])
def test_a_choice_is_of_one_model_and_outlives_the_process(templates, name):
    templates().choose("/a", "llama3")
    templates().choose("/b", name)
    assert (templates().of("/a", ""), templates().of("/b", "")) == ("llama3", name)
    assert templates().of("/c", "") == ""


def test_what_is_given_at_the_start_goes_before_an_earlier_choice_and_after_a_later_one(templates):
    first = templates()
    first.choose("/a", "llama3")
    again = templates()
    assert again.of("/a", "chatml") == "chatml"
    again.choose("/a", "")
    assert again.of("/a", "chatml") == ""


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"/a": 3}', '{"/a": ["chatml"]}', '{"/a": "no longer there"}', "\xff"]
)
def test_damage_costs_the_choice_alone(templates, tmp_path, text):
    (tmp_path / NAME).write_text(text, encoding="latin-1")
    assert templates().of("/a", "") == ""
    templates().choose("/a", "gemma")
    assert templates().of("/a", "") == "gemma"


@pytest.mark.parametrize("lost", ["a folder in its place", "no folder"])
def test_a_choice_that_cannot_be_kept_holds_until_the_end(tmp_path, lost):
    home = tmp_path / "home"
    if lost != "no folder":
        (home / NAME).mkdir(parents=True)
    chosen = ChosenTemplates(home)
    chosen.choose("/a", "gemma")
    assert chosen.of("/a", "") == "gemma"
    assert ChosenTemplates(home).of("/a", "") == ""
    assert not list(tmp_path.rglob("*.new"))


@asynchronous
async def test_a_base_model_chats_after_a_restart_as_before(tmp_path):
    folder = tmp_path / "base"
    shutil.copytree(POCKET, folder)
    (folder / "chat_template.jinja").unlink()
    settings, seen = Settings(home=tmp_path), []
    for chosen in ("chatml", ""):
        assistant = await Assistant.open(settings, str(folder))
        try:
            seen.append((assistant.loaded.template, assistant.loaded.text.chats))
            await assistant.use_template(chosen)
            await assistant.switch(str(folder))
            seen.append((assistant.loaded.template, assistant.loaded.text.chats))
        finally:
            await assistant.close()
    assert seen == [("", False), ("chatml", True), ("chatml", True), ("", False)]
