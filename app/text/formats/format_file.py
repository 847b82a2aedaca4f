"""Read the answer format given on the command line."""

import json
from pathlib import Path

from app.text.formats.gbnf import gbnf_grammar
from app.text.formats.json_schema import schema_grammar
from engine.errors import InvalidRequest
from engine.grammar.rules import Grammar

ANY_JSON, GBNF = "json", ".gbnf"


def read_format(name: str) -> Grammar:
    """Any JSON object for ``json``, else the GBNF grammar (.gbnf) or JSON Schema in the file.

    Raises InvalidRequest.
    """
    if name == ANY_JSON:
        return schema_grammar({"type": "object"})
    try:
        text = Path(name).read_text(encoding="utf-8")
        if name.endswith(GBNF):
            return gbnf_grammar(text)
        return schema_grammar(json.loads(text))
    except OSError as error:
        raise InvalidRequest(
            f"{name} cannot be read: {error.strerror}; name a file with a JSON Schema or a grammar "
            "(.gbnf), or write json"
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{name} is not a text in UTF-8: {error.reason}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{name} is not JSON: {error}") from error
