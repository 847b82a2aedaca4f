"""A validator of JSON Schema written straight from its text, for what the grammars are held to."""

import re
import uuid
from datetime import date, datetime

from app.text.formats.kinds import kind_of

FORM_CHECKS = {
    "date": date.fromisoformat,
    "date-time": lambda text: datetime.fromisoformat(text.replace("59:60", "59:59")),
    "time": lambda text: datetime.fromisoformat(f"2000-01-01T{text.replace('59:60', '59:59')}"),
    "uuid": uuid.UUID,
    "email": lambda text: re.fullmatch(r"[^@\s]{1,64}@[\w-]+(\.[\w-]+)+", text) or _no(text),
    "hostname": lambda text: len(text) <= 253 or _no(text),
    "json-pointer": lambda text: re.fullmatch(r"(/([^~/]|~[01])*)*", text) or _no(text),
    "relative-json-pointer": lambda text: re.match(r"\d+(#|/|$)", text) or _no(text),
    "ipv4": lambda text: all(0 <= int(part) <= 255 for part in text.split(".")) or _no(text),
}


def _no(text):
    raise ValueError(text)


def accepts(schema, value, root):
    """Whether the schema accepts the value."""
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema:
        found = root
        for part in schema["$ref"].split("/")[1:]:
            found = found[part]
        return accepts(found, value, root)
    checks = [
        _typed(schema, value),
        "const" not in schema or _same(schema["const"], value),
        "enum" not in schema or any(_same(one, value) for one in schema["enum"]),
        "anyOf" not in schema or any(accepts(s, value, root) for s in schema["anyOf"]),
        "oneOf" not in schema or sum(accepts(s, value, root) for s in schema["oneOf"]) == 1,
        "allOf" not in schema or all(accepts(s, value, root) for s in schema["allOf"]),
        not isinstance(value, str) or _string(schema, value),
        not _number(value) or _bounded(schema, value),
        not isinstance(value, list) or _array(schema, value, root),
        not isinstance(value, dict) or _object(schema, value, root),
    ]
    return all(checks)


def _number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(one, other):
    return kind_of(one) == kind_of(other) and one == other


def _typed(schema, value):
    declared = schema.get("type", [])
    kinds = [declared] if isinstance(declared, str) else declared
    kind = kind_of(value)
    whole = isinstance(value, float) and value.is_integer()
    return not kinds or kind in kinds or ("number" in kinds and kind == "integer") or (
        "integer" in kinds and whole
    )  # fmt: skip


def _string(schema, value):
    if "format" in schema:
        try:
            FORM_CHECKS[schema["format"]](value)
        except ValueError:
            return False
    return schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))


def _bounded(schema, value):
    return (
        schema.get("minimum", value) <= value <= schema.get("maximum", value)
        and ("exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"])
        and ("exclusiveMaximum" not in schema or value < schema["exclusiveMaximum"])
    )


def _array(schema, value, root):
    first = schema.get("prefixItems", [])
    return (
        schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
        and all(accepts(s, item, root) for s, item in zip(first, value, strict=False))
        and all(accepts(schema.get("items", True), item, root) for item in value[len(first) :])
    )


def _object(schema, value, root):
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    return all(name in value for name in schema.get("required", ())) and all(
        accepts(properties.get(name, others), item, root) for name, item in value.items()
    )
