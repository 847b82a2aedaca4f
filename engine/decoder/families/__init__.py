"""Families that the own decoder runs, by ``model_type``; other models run in transformers.

A new family is a file with its ``Family`` and its name in the tuple below.
"""

from engine.decoder.families.llama import LLAMA
from engine.decoder.families.mistral import MISTRAL
from engine.decoder.families.olmo2 import OLMO2
from engine.decoder.families.phi3 import PHI3
from engine.decoder.families.qwen2 import QWEN2
from engine.decoder.families.qwen3 import QWEN3
from engine.decoder.families.smollm3 import SMOLLM3
from engine.decoder.family import Family

FAMILIES: dict[str, Family] = {
    family.model_type: family for family in (LLAMA, MISTRAL, QWEN2, QWEN3, PHI3, SMOLLM3, OLMO2)
}
