"""The tests of the laws as a row of a bench: real pytest, in a process of its own."""

import pytest

from app.bench.papers import lossless


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """A test that takes no time stands for the laws."""
    monkeypatch.setattr(lossless, "LAWS", ("tests/engine/speculation/test_tree.py",))
    monkeypatch.setattr(lossless, "SAMPLED", "prefix")


def test_what_pytest_ends_with_is_told():
    hold, said = lossless.laws()
    assert hold
    assert " passed in " in said


def test_laws_that_cannot_be_tested_do_not_hold(monkeypatch):
    monkeypatch.setattr(lossless, "LAWS", ("tests/no such file.py",))
    hold, said = lossless.laws()
    assert not hold
    assert said.startswith("no tests ran")


def test_other_plug_ins_of_pytest_have_no_say(tmp_path, monkeypatch):
    """One that is installed wherever it likes, and breaks every run."""
    about = tmp_path / "hostile-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: hostile\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[pytest11]\nhostile = hostile\n")
    (tmp_path / "hostile.py").write_text(
        "def pytest_configure(config):\n    raise RuntimeError('not here')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    hold, said = lossless.laws()
    assert hold, said
