"""What a model's folder says about itself, and what is not believed."""

import pytest

from app.models.model_record import RECORD, ModelRecord, read_record, recorded_models


def test_it_is_read_as_it_was_written(tmp_path):
    record = ModelRecord("m", "org/m@c", "MIT", "draft", "/there")
    record.write(tmp_path)
    assert read_record(tmp_path) == record
    assert [file.name for file in tmp_path.iterdir()] == [RECORD]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "1", '{"name": "m"}', '{"name": 1, "source": "x"}', '{"name": "m", "source": "x", "more": 1}',
     '{"name": "m", "source": "x", "draft": 5}'],
)  # fmt: skip
def test_what_is_no_record_is_none(tmp_path, text):
    (tmp_path / RECORD).write_text(text)
    assert read_record(tmp_path) is None


def test_a_folder_is_found_under_its_own_name_only(tmp_path):
    for folder, name in (("a", "a"), ("b", "other"), (".hidden", ".hidden")):
        (tmp_path / folder).mkdir()
        ModelRecord(name, "x").write(tmp_path / folder)
    (tmp_path / "file").touch()
    assert [record.name for _, record in recorded_models(tmp_path)] == ["a"]
    assert list(recorded_models(tmp_path / "none")) == []
