"""Every constant of ``auto``, in one place."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tuning:
    """Constants of ``auto``; each with its unit and its reason. A speedup of 1 is plain decoding."""

    # Speedups.
    session_memory: float = 0.998  # weight of the past per round, of all answers
    request_memory: float = 0.9  # the same of one answer
    start_weight: float = 10.0  # plain passes that earlier answers count for in a new one
    # What an arm is expected to do before it was measured.
    guess: float = 1.3  # speedup, where nothing says how long its steps take
    guess_weight: float = 4.0  # plain passes that the guess counts for
    acceptance: float = 0.7  # share of drafted tokens that is accepted
    longest_chain: int = 8  # drafted tokens of the chains that this share is about
    # The choice.
    credit: float = 0.15  # share added to a speedup over the root of the answer's rounds
    stickiness: float = 1.05  # times as fast as the arm in use another one must be
    trial_rounds: int = 6  # rounds of a session after which an arm is known
    risk: float = (
        1.0  # plain passes that an answer may lose on arms that are not known, and on copies
    )
    risk_share: float = 0.02  # plain passes for each of its tokens that it may lose besides
    # What an arm reads before its first draft.
    least_left: int = 32  # tokens that an answer is expected to continue for, at least
    length_rate: float = 0.3  # weight of the newest answer in the usual length of an answer
    # N-gram proposals.
    price_rounds: int = 16  # rounds for which prices of rows are kept: asking takes 70 microseconds


TUNING = Tuning()
