"""The Models tab and a model that seems too large; the engine is a fake."""

import pytest

from app.chat.assistant import Assistant
from engine.errors import TooLarge
from tests.app.assisted import assisted
from tests.app.asynchronous import asynchronous
from ui.models.model_manager import ModelManager
from ui.models.tab import ModelsPage
from ui.tab import Command


@pytest.mark.parametrize("commands", [["use large"], ["context 4096"], ["use other", "use large"]])
def test_it_is_loaded_anyway_as_it_was_asked_for(commands, tmp_path, monkeypatch):
    """With the context that was asked for, too."""
    asked = []

    async def switch(
        _: Assistant, model: str, context: int | None = None, *, anyway: bool = False
    ) -> None:
        asked.append((model, context, anyway))
        if not anyway:
            raise TooLarge(f"{model} needs 5.0 GiB, and 2.0 GiB are free: choose a smaller one")

    @asynchronous
    async def story() -> None:
        async with assisted(tmp_path) as assistant:
            page = ModelsPage(ModelManager(assistant))
            for command in commands:
                name, _, rest = command.partition(" ")
                await page.receive(Command(command=name, name=rest))
            state = (await page.values())["tray"]
            assert "2.0 GiB are free: choose a smaller one. <button" in state
            [(model, context, _)] = asked[-1:]
            assert f'data-command="use-anyway" data-name="{model}"' in state
            await page.receive(Command(command="use-anyway", name=model))
            assert asked[-1] == (model, context, True)

    monkeypatch.setattr(Assistant, "switch", switch)
    story()
