"""Answer formats: JSON Schema, regular expressions and GBNF to the engine's grammars."""
