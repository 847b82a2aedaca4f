"""Every constant of the length policies, in one place."""

from dataclasses import dataclass
from math import exp


@dataclass(frozen=True, slots=True)
class Tuning:
    """Constants of the length policies; each with its unit and its reason.

    A memory is the weight of the past for each new observation.
    """

    # Acceptance by depth.
    guess: float = 0.8  # acceptance where nothing is known; high, so that first rounds find out
    guess_weight: float = 2.0  # evaluated tokens that the guess counts for
    guess_fade: float = 0.8  # factor on that weight for each evaluated token
    pool_weight: float = 12.0  # evaluated tokens that all requests count for in one request
    request_memory: float = 0.965  # per evaluated token, of one request
    pool_memory: float = 0.995  # per evaluated token, of all requests
    max_acceptance: float = 0.99  # acceptance is never certain
    history_weight: float = 36.0  # most evaluated tokens that earlier sessions count for, per depth
    history_memory: float = 0.9  # per walk, of earlier sessions
    history_range: tuple[float, float] = (0.05, 0.98)  # acceptance believed of earlier sessions

    # Goodput.
    tree_memory: float = 0.9  # per tree
    tree_gain: float = 0.55  # accepted tokens per doubling of a tree, before anything is known
    tree_guess_weight: float = 2.0  # trees that this guess counts for
    least_probability: float = 0.02  # of a node where rows are free: it still takes draft time
    most_probability: float = 0.5  # that a node is ever asked for
    first_probe: int = 4  # plain passes before a probe; doubles while speculation loses
    last_probe: int = 512  # plain passes before a probe, at most
    probe_length: int = 4  # tokens of a probe of a request that runs alone
    switch_length: int = 8  # tokens of a self-ending chain that its switch is asked about
    switch_rounds: int = 3  # rounds that a decision of the switch is kept: it takes 0.1 ms

    # Chains that end by a rule.
    longest_chain: int = 20  # tokens of one draft, as in SpecDec++
    least_floor: float = 0.02  # chance of full acceptance below which every chain ends
    next_acceptance: float = 0.8  # acceptance of the next token, which was not drafted yet
    least_log_probability: float = -8.0  # nats; smaller ones are not distinguished

    # Priced lengths.
    price_memory: float = 0.95  # per round, of a request's speedup
    price_prior_weight: float = 8.0  # plain passes that the first guess counts for

    # Dynamic exit: what is counted.
    exit_memory: float = 0.95  # per round, of one request
    exit_pool_memory: float = 0.995  # per round, of all requests
    exit_pool_weight: float = 8.0  # most tokens that all requests count for in one request
    exit_max_acceptance: float = 0.995  # acceptance is never certain
    # Acceptance of the first exit and of the whole model, linear between them: a guess, or one
    # early miss would end the use of an exit.
    exit_guess: tuple[float, float] = (0.5, 0.9)
    exit_guess_weight: float = 1.0  # tokens that this guess counts for
    # Share of an exit's misses that are its next likeliest tokens; measured on pocket.
    sibling_shares: tuple[float, ...] = (0.25, 0.13, 0.08, 0.05, 0.04, 0.03, 0.02)
    sibling_weight: float = 4.0  # misses that these shares count for
    bins: int = 6  # of confidence, each with its own acceptance
    bin_weight: float = 2.0  # tokens that the confidence itself counts for in its bin

    # Dynamic exit: what is chosen, and when layers are looked at.
    widths: tuple[int, ...] = (1, 2, 3, 4, 6, 8)  # candidates of a drafted token to choose among
    exit_guess_calls: int = 3  # calls that the paper's cost of a draft step counts for
    exit_longest: int = 18  # tokens of one draft, as in the paper
    prompt_rows: int = 32  # last rows of a prompt that are looked at
    prompt_weight: float = 1 / 16  # weight of a prompt row: a question says little of its answer
    trace_gap: int = 16  # most rounds between two traces while drafting
    plain_trace_gap: int = 512  # most rounds between two traces while decoding plainly
    first_trace_gap: int = 8  # most rounds before the first trace of an answer
    follow_traces: int = 2  # traces in a row after a good one while plain; 4 cost plain more
    news: float = 1.03  # times the last exit's rate that a better one must have to trace more often
    choice_rounds: int = 4  # rounds that a choice of exit is kept: it takes 0.3 ms
    most_logits: int = 2**24  # logits that are held at once

    @property
    def least_chance(self) -> float:
        """The least probability that is distinguished."""
        return exp(self.least_log_probability)

    @property
    def columns(self) -> int:
        """Columns of a table of counts (``shadow_tokens.Counts``)."""
        return 2 * self.bins + 2 * len(self.sibling_shares)


TUNING = Tuning()
