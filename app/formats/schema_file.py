"""A format that is named on the command line."""

import json
from pathlib import Path

from app.formats.json_schema import schema_grammar
from engine.errors import InvalidRequest
from engine.grammar.rules import Grammar

ANY_JSON = "json"


def read_format(said: str) -> Grammar:
    """Any JSON object for ``json``, else the JSON Schema in the file; raises InvalidRequest."""
    if said == ANY_JSON:
        return schema_grammar({"type": "object"})
    try:
        schema = json.loads(Path(said).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidRequest(
            f"{said} cannot be read: {error.strerror}; name a file with a JSON Schema, or say json"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{said} is not JSON: {error}") from error
    return schema_grammar(schema)
