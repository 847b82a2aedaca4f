"""No test of a target asks for speed."""

from tests.engine.tiny import quick_to_load  # noqa: F401 - an autouse fixture
