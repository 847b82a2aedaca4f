"""Every constant of the length policies, in one place."""

from dataclasses import dataclass
from math import exp


@dataclass(frozen=True, slots=True)
class Tuning:
    """Constants of the length policies; each with its unit and its reason.

    A memory is the weight of the past for each new observation.
    """

    # Acceptance of drafted tokens.
    guess: float = 0.8  # of a token that was not drafted yet, where nothing is known
    guess_weight: float = 2.0  # observations that a guess counts for
    pool_weight: float = 12.0  # tokens that all requests count for in one request
    request_memory: float = 0.965  # per evaluated token, of one request
    pool_memory: float = 0.995  # per evaluated token, of all requests
    max_acceptance: float = 0.99  # acceptance is never certain

    # Goodput.
    tree_gain: float = 0.55  # accepted tokens per doubling of a tree, before anything is known
    probe_length: int = 4  # tokens of a probe of a request that runs alone
    first_rest: int = 4  # plain passes before a probe; doubles while speculation loses
    switch_length: int = 8  # tokens of a self-ending chain that its switch is asked about
    kept_rounds: int = 3  # rounds for which a decision to draft, or not to, is kept
    longest_rest: int = 512  # plain passes before a probe or a trace, at most

    # Chains that end by a rule.
    longest_chain: int = 20  # tokens of one draft, as in SpecDec++
    least_floor: float = (
        0.02  # chance of acceptance below which nothing is drafted, whatever rows cost
    )
    least_log_probability: float = -8.0  # nats; smaller ones are not distinguished

    # Dynamic exit.
    exit_guess: tuple[float, float] = (0.5, 0.9)  # acceptance of the first exit and the whole model
    guess_calls: int = 3  # calls that the paper's cost of a draft step counts for
    # Share of an exit's misses that are its next likeliest tokens; measured on pocket.
    sibling_shares: tuple[float, ...] = (0.25, 0.13, 0.08, 0.05, 0.04, 0.03, 0.02)
    bins: int = 6  # of confidence, each with its own acceptance
    trace_gap: int = 16  # most rounds between two traces while drafting
    most_logits: int = 2**24  # logits that are held at once

    @property
    def least_chance(self) -> float:
        """The least probability that is distinguished."""
        return exp(self.least_log_probability)


TUNING = Tuning()
