"""Train the bundled models: ``python -m engine.training.pocket --gsm8k FILE --minutes N --out DIR``."""

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Generator

from engine.decoder.decoder import Architecture
from engine.models.own.target import load_target
from engine.training.chores import draw_chore
from engine.training.corpus import Corpus, Mixture, Rows
from engine.training.dialogues import small_talk, unknown
from engine.training.network import TrainableDecoder
from engine.training.own_answers import Answer, own_answers
from engine.training.passages import (
    HELD_OUT_PROBLEMS,
    Passages,
    Problem,
    gather_passages,
    read_problems,
)
from engine.training.questions import Questions
from engine.training.tokenizer import END, save_tokenizer, token_id, train_tokenizer
from engine.training.trainer import Batches, Progress, Recipe, train

VOCAB = 4096
CONTEXT = 4096
ROPE_THETA = 10_000.0
DRAFT_SHARE = 0.25  # of the minutes
LONG_EVERY = 40  # one step in forty uses rows of the full context
OWN_ANSWERS = 13_000  # of pocket, the training data of its draft model
OWN_TOKENS = 200  # at most, of one answer
OWN_TEXT = Mixture(problem=0.08, chore=0.1, talk=0.02, source=0.0, copying=0.0, own=0.8)

POCKET = Architecture(320, 8, 10, 5, 32, 864, VOCAB, CONTEXT, 1e-5)
POCKET_DRAFT = Architecture(128, 3, 4, 2, 32, 352, VOCAB, CONTEXT, 1e-5)


@dataclass(frozen=True, slots=True)
class Job:
    """Arguments of the command line."""

    gsm8k: Path
    minutes: float
    out: Path
    batch: int
    length: int
    device: str


def tokenizer_texts(problems: list[Problem], passages: Passages) -> list[str]:
    """Training text of the tokenizer: problems, chores, small talk, sources."""
    rng = Random(0)
    texts = [f"{p.question}\n{p.answer}" for p in problems]
    for _ in range(20_000):
        chore = draw_chore(rng, passages)
        texts.append(f"{chore.prompt}\n{chore.answer}")
    texts += ["\n".join(small_talk(rng) + unknown(rng)) for _ in range(1000)]
    return texts + [s[:3000] for s in passages.sources]


def batches_for(corpus: Corpus, job: Job, mixture: Mixture) -> Batches:
    """Rows by progress: copying first, then the mixture; sometimes rows of the full context."""

    def rows(share: float, step: int) -> Rows:
        early = replace(mixture, copying=mixture.copying + max(0.0, 1 - share / 0.12))
        if step % LONG_EVERY == LONG_EVERY - 1:
            return corpus.rows(early, max(1, job.batch * job.length // CONTEXT), CONTEXT)
        return corpus.rows(early, job.batch, job.length)

    return rows


def export(model: TrainableDecoder, tokenizer: Tokenizer, folder: Path) -> None:
    """Write a Hugging Face folder: bfloat16 weights, config, tokenizer."""
    arch = model.arch
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        n: p.detach().cpu().to(torch.bfloat16).contiguous() for n, p in model.weights().items()
    }
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "hidden_size": arch.hidden, "num_hidden_layers": arch.layers,
        "num_attention_heads": arch.heads, "num_key_value_heads": arch.kv_heads,
        "head_dim": arch.head_dim, "intermediate_size": arch.feed_forward,
        "vocab_size": arch.vocab, "max_position_embeddings": arch.context,
        "rms_norm_eps": arch.norm_eps, "rope_theta": ROPE_THETA, "hidden_act": "silu",
        "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False,
        "bos_token_id": tokenizer.token_to_id("<|bos|>"),
        "eos_token_id": tokenizer.token_to_id("<|end|>"),
        "pad_token_id": tokenizer.token_to_id("<|pad|>"), "dtype": "bfloat16",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_tokenizer(tokenizer, folder, arch.context)


def run(job: Job) -> None:
    """Train the tokenizer, pocket, then pocket-draft with pocket as teacher; every stage resumes."""
    problems = read_problems(job.gsm8k)[:-HELD_OUT_PROBLEMS]
    passages = gather_passages(problems)
    tokenizer = _tokenizer(problems, passages, job.out)
    pocket = TrainableDecoder(POCKET, ROPE_THETA, Generator().manual_seed(1)).to(job.device)
    batches = batches_for(Corpus(tokenizer, problems, passages, seed=1), job, Mixture())
    recipe = Recipe(minutes=job.minutes * (1 - DRAFT_SHARE))
    _follow("pocket", pocket, train(pocket, batches, recipe, job.out / "pocket"))
    export(pocket, tokenizer, job.out / "export" / "pocket")
    own = _own_answers(problems, passages, tokenizer, job.out)
    draft = TrainableDecoder(POCKET_DRAFT, ROPE_THETA, Generator().manual_seed(2)).to(job.device)
    batches = batches_for(Corpus(tokenizer, problems, passages, seed=2, own=own), job, OWN_TEXT)
    recipe = Recipe(
        minutes=job.minutes * DRAFT_SHARE, dropout=0.0, exit_scale=0.0, learning_rate=5e-3
    )

    def teacher(tokens: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return pocket.logits(pocket.hidden(tokens, [], [None] * POCKET.layers)[-1])

    _follow("pocket-draft", draft, train(draft, batches, recipe, job.out / "pocket-draft", teacher))
    export(draft, tokenizer, job.out / "export" / "pocket-draft")


def _tokenizer(problems: list[Problem], passages: Passages, out: Path) -> Tokenizer:
    saved = out / "tokenizer.json"
    if saved.exists():
        return Tokenizer.from_file(str(saved))
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(tokenizer_texts(problems, passages), VOCAB)
    tokenizer.save(str(saved))
    return tokenizer


def _own_answers(
    problems: list[Problem], passages: Passages, tokenizer: Tokenizer, out: Path
) -> list[Answer]:
    """Pocket's answers to many questions, computed on the CPU, as in tests."""
    questions = Questions(problems, passages, seed=3)
    corpus = Corpus(tokenizer, problems, passages, seed=3)
    prompts = [corpus.prompt(questions.draw()) for _ in range(OWN_ANSWERS)]
    target = load_target(out / "export" / "pocket", "float32", "cpu")
    end = token_id(tokenizer, END)
    answered: list[Answer] = []
    for answered in own_answers(target, prompts, OWN_TOKENS, end, out / "own_answers.jsonl"):
        sys.stderr.write(f"pocket answered {len(answered)} of {len(prompts)} questions\n")
        sys.stderr.flush()
    return answered


def _follow(name: str, model: TrainableDecoder, progress: Iterable[Progress]) -> None:
    size = sum(p.numel() for p in model.parameters())
    sys.stderr.write(f"{name}: {size / 1e6:.2f}M parameters\n")
    for now in progress:
        if now.step % 20 == 0:
            sys.stderr.write(
                f"{name} step {now.step} tokens {now.tokens / 1e6:.2f}M loss {now.loss:.3f} "
                f"{100 * now.share:.1f} % {now.tokens / now.seconds:.0f} tok/s\n"
            )
            sys.stderr.flush()


def main() -> None:
    """Command line of the recipe."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gsm8k", type=Path, required=True, help="JSON lines: question, answer")
    parser.add_argument("--minutes", type=float, required=True,
                        help="wall time of training both; pocket's answers in between take extra time")  # fmt: skip
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--batch", type=int, default=14)
    parser.add_argument("--length", type=int, default=320)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    run(Job(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
