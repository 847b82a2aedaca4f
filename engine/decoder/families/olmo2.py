"""OLMo 2: norms come after attention and feed-forward parts; q and k are normed over all heads."""

from engine.decoder.family import ATTENTION_BIAS, Family, TensorNames

OLMO2 = Family(
    "olmo2",
    names=TensorNames(
        attention_norm="post_attention_layernorm.weight",
        mlp_norm="post_feedforward_layernorm.weight",
    ),
    norm_after=True,
    head_norms="all",
    bias_fields=ATTENTION_BIAS,
)
