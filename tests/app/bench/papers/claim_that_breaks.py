"""A claim for tests that cannot be shown."""

from app.errors import RequestFailed


def show(instrument):
    raise RequestFailed("in the lane plain: out of memory")
