"""``python -m app``: the same as ``slipstream``, after setting itself up where that is missing."""

import sys

# This file and the package's __init__ are read by any Python 3, also one that is too old.
OLDEST = (3, 11)


def main() -> int:
    """Run the installed command, or install it first; returns the exit status."""
    if sys.version_info < OLDEST:
        found = ".".join(map(str, sys.version_info[:3]))
        sys.stderr.write(
            f"Slipstream needs Python 3.11 or newer; this is Python {found} ({sys.executable}). "
            "Run the same command with a newer one, such as python3.12 -m app\n"
        )
        return 1
    from app.setup import bootstrap

    return bootstrap.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
