"""Barriers: how long a thread that waits for another one keeps its core."""

from collections.abc import MutableMapping

SPINS = "3000"  # looks at a barrier before a thread sleeps


def sleep_soon(environ: MutableMapping[str, str]) -> None:
    """Let waiting threads give their cores away; a person's own settings stay.

    OpenMP reads this when torch, or llama.cpp, is loaded, each its own copy of it. Threads meet at
    hundreds of barriers in a pass. As it comes, whoever waits there keeps its core busy, even where
    the one that is waited for needs that core because another program has its own. The bundled model
    gave 16 to 41 tokens a second while a browser on the same two cores showed them, instead of 23 to
    97; a pass of a GGUF file took 94 to 1,000 ms instead of 26, with threads that soon sleep 42 to 56. How soon is a compromise. On one idle machine sleeping after 1,000 looks cost nothing; on
    another, where a thread wakes up late, a 4-bit pass took 30 ms, after 3,000 looks 25 and after
    10,000 24. There, beside a program that had a core to itself, it took 48, 55 and 78 ms, and 190
    after 100,000.
    """
    if "OMP_WAIT_POLICY" not in environ:
        environ.setdefault("GOMP_SPINCOUNT", SPINS)
