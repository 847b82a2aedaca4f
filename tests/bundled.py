"""Where the checkout and the bundled models in it are."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUNDLED = ROOT / "engine" / "bundled"
POCKET, POCKET_DRAFT = BUNDLED / "pocket", BUNDLED / "pocket-draft"
