"""SGLang's start command; options as in ``python -m sglang.launch_server`` of the version below."""

from app.export.serving import (
    HEAD,
    START,
    Command,
    Draft,
    Kind,
    Serving,
    Weights,
    chosen,
    flags,
    on_each,
)

ENGINE = "SGLang 0.5.23"
_PORT = 20000
_ALGORITHMS = {
    Kind.NGRAM: "NGRAM",
    Kind.MODEL: "STANDALONE",
    Kind.MTP: "NEXTN",
    Kind.EAGLE3: "EAGLE3",
    Kind.DFLASH: "DFLASH",
    Kind.DSPARK: "DSPARK",
}
_STEPS = (Kind.MODEL, Kind.MTP, Kind.EAGLE3)  # that draft one token after another


def command(serving: Serving) -> Command:
    """One line for each machine."""
    draft, notes = chosen(serving.drafts, lambda one: one.kind in _ALGORITHMS, ENGINE)
    gguf = "gguf" if serving.weights.gguf else None
    options = [
        *flags(
            model_path=serving.weights.file or serving.weights.source,
            served_model_name=serving.name,
            load_format=gguf,
            quantization=gguf,
            context_length=serving.context,
            max_running_requests=serving.sessions,
            tp_size=serving.split.tensor,
            pp_size=serving.split.pipeline,
        ),
        *(_speculation(draft) if draft else ()),
    ]
    lines = on_each(
        serving.nodes,
        ["python", "-m", "sglang.launch_server", *options],
        lambda rank: flags(nnodes=serving.nodes, node_rank=rank, dist_init_addr=f"{HEAD}:{_PORT}"),
    )
    return Command(ENGINE, lines, (*notes, *_about_files(serving.weights), *_about_memory(serving)))


def _speculation(draft: Draft) -> list[str]:
    tokens = draft.tokens or (START if draft.kind in _STEPS else None)
    steps = tokens if draft.kind in _STEPS else None
    verified = tokens if tokens is None else tokens + 1  # the last accepted token is a row, too
    return flags(
        speculative_algorithm=_ALGORITHMS[draft.kind],
        speculative_draft_model_path=draft.weights.source if draft.weights else None,
        speculative_num_steps=steps,
        speculative_eagle_topk=None if steps is None else 1,
        speculative_num_draft_tokens=verified,
    )


def _about_files(weights: Weights) -> list[str]:
    if not weights.file:
        return []
    get = f"hf download {weights.source} {weights.file} --local-dir ."
    return [f"files: SGLang reads a GGUF file from a path; get it on each machine: {get}"]


def _about_memory(serving: Serving) -> list[str]:
    if serving.memory is None:
        return []
    return ["memory: SGLang finds its own share; --mem-fraction-static would set another one"]
