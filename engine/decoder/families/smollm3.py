"""SmolLM 3: some layers use no positions."""

from engine.decoder.family import ATTENTION_BIAS, MLP_BIAS, Family

SMOLLM3 = Family(
    "smollm3",
    bias_fields={**ATTENTION_BIAS, **MLP_BIAS},
    rotated_layers="no_rope_layers",
)
