"""The log file: there when something went wrong, and only then."""

import logging
from pathlib import Path

from app.logs import logging_to_file
from app.settings import Settings, prepare_home


def test_warnings_go_to_the_file_and_nothing_else_does(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    prepare_home(settings)
    file = settings.logs / "slipstream.log"
    with logging_to_file(settings):
        logging.getLogger("app.somewhere").info("all is well")
        assert not file.exists()
        logging.getLogger("app.somewhere").warning("something is odd")
    logging.getLogger("app.somewhere").warning("after the end")
    assert [line.split(" ", 2)[2] for line in file.read_text().splitlines()] == [
        "WARNING app.somewhere: something is odd"
    ]
