"""A claim for tests that has a bug."""


def show(instrument):
    raise ValueError("a bug")
