"""Settings with a home that is ready."""

from pathlib import Path

import pytest

from app.settings import Settings, prepare_home


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = Settings(home=tmp_path / "home")
    prepare_home(made)
    return made
