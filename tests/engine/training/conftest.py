"""A small set of passages: the real readers over a few sources, in a second instead of many."""

import inspect
import shlex
import textwrap

import pytest

from engine.training.passages import Passages, Problem, sentences_of, snippets_of

STORY = (
    "The baker opened the old shop before sunrise every single day. A tall captain painted his "
    "boat with bright green colour. Seven tired hikers crossed the frozen river near camp. Our "
    "teacher explained gravity with a feather and a stone. The children planted forty tulips "
    "behind the library. Grandfather repaired the broken clock with a silver spoon. My neighbour "
    "collects postcards from distant islands. Two engineers measured the bridge during the storm."
)


@pytest.fixture(scope="session")
def problems() -> list[Problem]:
    return [
        Problem(f"Tom has {n} apples and buys {n + 1} more of them. How many apples does he have?",
                f"He has {n}+{n + 1} = {2 * n + 1} apples.\nThe answer is {2 * n + 1}.")
        for n in range(2, 30)
    ]  # fmt: skip


@pytest.fixture(scope="session")
def passages() -> Passages:
    sources = [inspect.getsource(textwrap), inspect.getsource(shlex), inspect.getsource(inspect)]
    return Passages(
        sentences=tuple(sentences_of([STORY])),
        snippets=tuple(snippets_of(sources)),
        words=("river", "stone", "clock", "spoon", "island", "bridge", "storm", "shop") * 8,
        sources=tuple(sources),
    )
