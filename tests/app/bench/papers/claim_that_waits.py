"""A claim for tests that takes far longer than they do, and leaves the name of its process."""

import os
import time
from pathlib import Path


def show(instrument):
    (Path(instrument.model) / str(os.getpid())).touch()
    time.sleep(300)
