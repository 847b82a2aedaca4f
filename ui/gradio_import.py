"""Import Gradio without the editor stubs that it writes next to its own sources.

For each of its eighty components Gradio parses the source twice, to see whether its .pyi file is up to
date: 1.8 of the 3.9 seconds of its import, at every start. The page needs none. Delete when Gradio
writes its stubs when it is packaged.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from typing_extensions import override

MODULE, WRITES = "gradio.component_meta", "create_or_modify_pyi"


@contextmanager
def without_stubs() -> Iterator[None]:
    """Import Gradio inside this context, for the first time in the process."""
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Finder(MetaPathFinder):
    """Finds the one module that writes stubs."""

    @override
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != MODULE:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    """Runs the module, then replaces its writer if it has one."""

    def __init__(self, usual: Loader) -> None:
        self._usual = usual

    @override
    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._usual.create_module(spec)

    @override
    def exec_module(self, module: ModuleType) -> None:
        self._usual.exec_module(module)
        if hasattr(module, WRITES):
            setattr(module, WRITES, _nothing)


def _nothing(*_: object) -> None:
    """Writes no stub."""
