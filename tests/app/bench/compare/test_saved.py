"""Saved benchmarks: whole files, newest first, and never a path that somebody made up."""

from pathlib import Path

import pytest

from app.bench.compare.record import BenchmarkRecord, Figures, LaneRecord
from app.bench.compare.saved import SavedBenchmarks, as_json
from app.errors import OutputFileError


def made(date: str, model: str = "pocket") -> BenchmarkRecord:
    plain = Figures(
        tokens=4, seconds=1, passes=4, drafted=0, accepted=0, answers=1, identical=1, speedup=None
    )
    lane = LaneRecord(drafter="none", all=plain, categories={"qa": plain}, passes_by_drafter={})
    return BenchmarkRecord(
        date=date,
        model=model,
        parameters=9,
        machine="a machine",
        questions=1,
        skipped=0,
        max_tokens=64,
        lanes=[lane],
        refused={"chain": "no draft"},
    )


def test_what_is_kept_is_found_again_newest_first(tmp_path):
    shelf = SavedBenchmarks(tmp_path / "home")
    assert shelf.all() == []
    dates = ["2026-05-01T10:00:00+00:00", "2026-06-01T10:00:00+00:00", "2026-05-02T10:00:00+00:00"]
    kept = [shelf.keep(made(date)) for date in dates]
    assert [one.record.date for one in shelf.all()] == sorted(dates, reverse=True)
    assert shelf.find(kept[0].name).record == made(dates[0])
    shelf.remove(kept[0].name)
    assert kept[0] not in shelf.all()
    with pytest.raises(OutputFileError, match="no benchmark"):
        shelf.remove(kept[0].name)


def test_names_lead_nowhere_else(tmp_path):
    shelf = SavedBenchmarks(tmp_path)
    outside = tmp_path / "outside.json"
    outside.write_text(as_json(made("2026-05-01T10:00:00+00:00")))
    kept = shelf.keep(made("2026-05-01T10:00:00+00:00", "../../a model: 7B/x"))
    assert Path(kept.name).name == kept.name
    assert (tmp_path / "benchmarks" / f"{kept.name}.json").is_file()
    with pytest.raises(OutputFileError):
        shelf.remove("../outside")
    assert outside.exists()


def test_a_damaged_or_newer_file_hides_no_other(tmp_path):
    shelf = SavedBenchmarks(tmp_path)
    kept = shelf.keep(made("2026-05-01T10:00:00+00:00"))
    folder = tmp_path / "benchmarks"
    (folder / "a.json").write_text("{")
    (folder / "b.json").write_text(as_json(kept.record).replace('"version": 1', '"version": 99'))
    assert shelf.all() == [kept]


def test_a_home_that_takes_no_files_is_reported(tmp_path):
    (tmp_path / "benchmarks").write_text("a file, not a folder")
    with pytest.raises(OutputFileError, match="cannot be kept"):
        SavedBenchmarks(tmp_path).keep(made("2026-05-01T10:00:00+00:00"))
