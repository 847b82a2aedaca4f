"""llama-server's start command; options as in llama.cpp of the version below."""

from app.export.serving import (
    Command,
    Draft,
    ExportRefused,
    Kind,
    Serving,
    Weights,
    chosen,
    flags,
)

ENGINE = "llama-server b11434"
_RPC_PORT = 50052
_TYPES = {
    Kind.NGRAM: "ngram-simple",
    Kind.MODEL: "draft-simple",
    Kind.MTP: "draft-mtp",
    Kind.EAGLE3: "draft-eagle3",
    Kind.DFLASH: "draft-dflash",
    Kind.DSPARK: "draft-dspark",
}


def command(serving: Serving) -> Command:
    """The other machines run rpc-server; raises ExportRefused."""
    if not serving.weights.gguf:
        raise ExportRefused(
            f"{ENGINE} reads GGUF files only; make one first: slipstream export-gguf --model "
            f"{serving.name} --type q4_k_m --out {serving.name}.gguf"
        )
    draft, notes = chosen(serving.drafts, _has, ENGINE)
    others = [f"MACHINE_{rank + 1}:{_RPC_PORT}" for rank in range(1, serving.nodes)]
    context = serving.context * (serving.sessions or 1)
    options = [
        *_from(serving.weights, "model", "hf-repo", "hf-file"),
        *flags(
            alias=serving.name,
            ctx_size=context,
            parallel=serving.sessions,
            gpu_layers=None if serving.gpus else 0,
            rpc=",".join(others) or None,
        ),
        *(_speculation(draft) if draft else ()),
    ]
    main = ("llama-server", *options)
    rest = tuple(("rpc-server", *flags(host="0.0.0.0", port=_RPC_PORT)) for _ in others)  # noqa: S104
    return Command(ENGINE, (main, *rest), (*notes, *_about_machines(serving)))


def _has(draft: Draft) -> bool:
    return draft.kind in _TYPES and (draft.weights is None or draft.weights.gguf)


def _from(weights: Weights, path: str, repo: str, file: str) -> list[str]:
    if weights.local:
        return [f"--{path}", weights.source]
    return [f"--{repo}", weights.source, *((f"--{file}", weights.file) if weights.file else ())]


def _speculation(draft: Draft) -> list[str]:
    if draft.kind is Kind.NGRAM:
        return flags(spec_type=_TYPES[draft.kind], spec_ngram_simple_size_m=draft.tokens)
    names = ("spec-draft-model", "spec-draft-hf", "spec-draft-model")
    source = _from(draft.weights, *names) if draft.weights else []
    return [*flags(spec_type=_TYPES[draft.kind], spec_draft_n_max=draft.tokens), *source]


def _about_machines(serving: Serving) -> list[str]:
    notes = []
    if serving.gpus > 1:
        notes.append("GPUs: llama-server splits the layers over all that it finds, with no option")
    if serving.nodes > 1:
        notes.append(
            "machines: start rpc-server on the others first, in a network that only you can reach: "
            "it asks for no key"
        )
    return notes
