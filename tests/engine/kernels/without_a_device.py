"""Compiles every kernel for CUDA devices that are not here: ``python -m`` this, not interpreted.

The interpreter takes what no device's compiler would: a name that changes its shape in a loop, say.
Real host code makes the launches, so each kernel is compiled with the arguments that it really gets.
"""

import sys
import warnings

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from engine.kernels import verify as host
from engine.kernels.fused_ops import gated, rms_norm, turned_into_cache
from engine.kernels.philox import PhiloxRandom
from engine.kernels.tree_attention import tree_attention
from engine.kernels.tree_walk import rates
from engine.request import SamplingParams
from engine.speculation.tree import DraftTree, chain

TYPES = {
    torch.float64: "*fp64",
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.int32: "*i32",
    float: "fp32",
}
VOCAB = 500
BLOCK = 32  # a token to a thread: less code to compile, of the same kind
OPTIONS = ("num_warps", "num_stages", "enable_fp_fusion")


class Launches:
    """Compiles what is launched, once each, and launches nothing."""

    def __init__(self, capabilities: list[int]) -> None:
        self.capabilities = capabilities
        self.done: set[tuple[str, str]] = set()

    def __call__(self, kernel: JITFunction):
        def launch(*args, **named):
            options = {key: named.pop(key) for key in OPTIONS if key in named}
            given = dict(zip(kernel.arg_names, args, strict=False)) | named
            fixed = {p.name: given[p.name] for p in kernel.params if p.is_constexpr}
            signature = {
                name: "constexpr" if name in fixed else type_of(value)
                for name, value in given.items()
            }
            key = kernel.__name__, f"{signature} {fixed} {options}"
            if key in self.done:
                return
            self.done.add(key)
            for capability in self.capabilities:
                source = ASTSource(kernel, signature, constexprs=fixed)
                target = GPUTarget("cuda", capability, 32)
                binary = triton.compile(source, target=target, options=options).asm["cubin"]
                sys.stdout.write(f"{kernel.__name__} {capability}: {len(binary)} bytes\n")

        return launch


def type_of(value) -> str:
    if isinstance(value, int):
        return "i32" if abs(value) < 2**31 else "i64"
    return TYPES[value.dtype if isinstance(value, torch.Tensor) else type(value)]


def judged() -> None:
    """Every way in which verify_all launches; every kernel meets both formats of logits."""
    law = torch.full((VOCAB,), 1 / VOCAB)
    chosen = DraftTree((1, 2, 3), (-1, 0, 0))
    trees = [
        (chosen, SamplingParams(0.8, seed=1)),
        (chosen, SamplingParams(0.8, top_k=9, seed=1)),
        (chain([1, 2, 3], {0: law, 1: law}), SamplingParams(0.8, seed=1)),
        (chain([1, 2, 3], {0: law, 1: law}), SamplingParams(0.8, top_k=9, seed=1)),
        (DraftTree((1, 2, 3), (-1, 0, 0), {0: law}), SamplingParams(0.8, seed=1)),
        (DraftTree((1, 2, 3), (-1, 0, 0), {0: law}), SamplingParams(0.8, top_k=9, seed=1)),
        (DraftTree((1, 2, 3), (-1, 0, 0), {0: law}, replaced=True), SamplingParams(0.8, seed=1)),
    ]
    for at, (tree, sampling) in enumerate(trees):
        logits = torch.randn(len(tree), VOCAB).to((torch.float32, torch.bfloat16)[at % 2])
        host.launch_all([(tree, logits, sampling, PhiloxRandom(2**40))])


def passed() -> None:
    """What a pass is made of, in every format."""
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        q = torch.randn(3, 8, 64).to(dtype)
        kv = torch.randn(2, 99, 64).to(dtype)
        bits = torch.ones(3, 16, dtype=torch.int32)
        turns = torch.randn(2, 3, 1, 64).to(dtype)
        start = torch.tensor([90], dtype=torch.int32)
        for rotated in (tuple(turns), None):
            turned_into_cache((q, q[:, :2], q[:, :2]), rotated, (kv, kv), start)
        gated(rms_norm(torch.randn(3, 512).to(dtype), torch.ones(512).to(dtype), 1e-5))
        tree_attention(q, kv, kv, bits, torch.tensor([90, 93], dtype=torch.int32))


def main() -> None:
    warnings.simplefilter("error")
    host._WIDEST = BLOCK
    launches = Launches([int(text) for text in sys.argv[1:]])
    JITFunction.__getitem__ = lambda kernel, grid: launches(kernel)
    judged()
    passed()
    rates(torch.rand(VOCAB), 2**40, 3)
    sys.stdout.write(f"{len(launches.done)} kernels\n")


if __name__ == "__main__":
    main()
