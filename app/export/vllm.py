"""vLLM's start command; options as in ``vllm serve`` of the version below."""

import json

from app.export.serving import (
    HEAD,
    START,
    Command,
    Draft,
    ExportRefused,
    Kind,
    Serving,
    chosen,
    flags,
    on_each,
)

ENGINE = "vLLM 0.33.0"
_METHODS = {
    Kind.NGRAM: "ngram",
    Kind.SUFFIX: "suffix",
    Kind.MODEL: "draft_model",
    Kind.MTP: "mtp",
    Kind.EAGLE3: "eagle3",
    Kind.DFLASH: "dflash",
    Kind.DSPARK: "dspark",
}
_BY_WEIGHTS = (Kind.DFLASH, Kind.DSPARK)  # how many tokens is in the draft's own config
_SUFFIX = "drafts: suffix needs Arctic Inference, too: pip install arctic-inference"
_LONGEST_MATCH = 4  # tokens that have to match before vLLM copies; it has no default


def command(serving: Serving) -> Command:
    """Raises ExportRefused for files that it does not read."""
    if serving.weights.gguf:
        raise ExportRefused(
            f"{ENGINE} reads no GGUF files; name the same model as safetensors, or use --engine "
            "sglang or llama-server"
        )
    draft, notes = chosen(serving.drafts, _has, ENGINE)
    options = [
        *flags(
            served_model_name=serving.name,
            max_model_len=serving.context,
            max_num_seqs=serving.sessions,
            gpu_memory_utilization=serving.memory,
            tensor_parallel_size=serving.split.tensor,
            pipeline_parallel_size=serving.split.pipeline,
        ),
        *(flags(speculative_config=json.dumps(_speculation(draft))) if draft else ()),
    ]
    lines = on_each(
        serving.nodes,
        ["vllm", "serve", serving.weights.source, *options],
        lambda rank: [
            *flags(nnodes=serving.nodes, node_rank=rank, master_addr=HEAD),
            *(("--headless",) if rank else ()),
        ],
    )
    suffix = [_SUFFIX] if draft and draft.kind is Kind.SUFFIX else []
    return Command(ENGINE, lines, (*notes, *suffix))


def _has(draft: Draft) -> bool:
    return draft.weights is None or not draft.weights.gguf


def _speculation(draft: Draft) -> dict[str, object]:
    found: dict[str, object] = {"method": _METHODS[draft.kind]}
    if draft.weights:
        found["model"] = draft.weights.source
    if draft.tokens or draft.kind not in (*_BY_WEIGHTS, Kind.SUFFIX):
        found["num_speculative_tokens"] = draft.tokens or START
    if draft.kind is Kind.NGRAM:
        found["prompt_lookup_max"] = _LONGEST_MATCH
    return found
