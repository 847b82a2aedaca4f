"""Every constant of ``auto``, in one place."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tuning:
    """Constants of ``auto``; each with its unit and its reason. A speedup of 1 is plain decoding."""

    # Memory: weight of the past per round.
    session_memory: float = 0.995  # of what a session measured
    request_memory: float = 0.9  # of what one request measured
    outlier: float = 4.0  # times the expected time of a round; more is a pause of the machine

    # What an arm is expected to do before it was measured.
    guess: float = 1.3  # speedup
    guess_weight: float = 6.0  # plain passes that the guess counts for
    start_weight: float = 10.0  # plain passes that the session counts for at a request's start
    usual_acceptance: float = 0.7  # share of drafted tokens that is accepted, to rank untried arms
    best_acceptance: float = 0.9  # share that is hardly ever exceeded, to rule out untried arms
    longest_chain: int = 8  # drafted tokens of the chains that these shares are about

    # The leader: the arm that drafts while nothing is on trial.
    credit: float = 0.15  # added share of a speedup over the root of its rounds
    rival_credit: float = 0.3  # the same for an arm that is compared with the leader
    stickiness: float = 1.05  # times as fast as the leader another arm must be
    max_lost: float = 0.95  # plain passes that an arm may lose before it counts as too slow
    clearly_less: float = 0.75  # share of the session's speedup; a request below it is believed
    reconsider_tokens: int = 8  # tokens after which a leader is chosen again without news
    reading_price: float = 2.0  # times the cost of reading: every other round is another arm's
    least_left: int = 32  # tokens that an answer is expected to continue for, at least
    length_rate: float = 0.3  # weight of the newest answer in the usual length of an answer

    # Trials of untried arms, and probes of known ones.
    trial_rounds: int = 6  # of a trial, the first of which reads the prompt
    probe_rounds: int = 3  # of a probe
    trial_gap: int = 8  # rounds between two trials: no answer pays for all of them
    patience: int = 32  # rounds of a session without trials if history has an arm that pays
    short_answer: int = 8  # tokens; a shorter answer cannot win back a trial
    first_probe: int = 64  # rounds before a rival is probed; doubles after each probe
    last_probe: int = 512  # rounds between two probes, at most
    rival_share: float = 0.8  # share of the best speedup that makes an arm worth a probe
    affordable: float = 0.01  # plain passes per token to come that reading for a trial may take
    empty_rounds: int = 2  # rounds of a trial in a row without a draft that end it

    # Proposals of arms that decline most rounds.
    evidence: float = 10.0  # tokens that their own estimates count for: copies fail in bursts
    margin: float = 1.15  # times the price of its rows that a proposal must bring
    price_rounds: int = 16  # rounds for which prices of rows are kept
    risk: float = 1.0  # plain passes that an answer may lose on one proposal
    copy_share: float = 0.5  # share of the gain of recent copies that is expected to last


TUNING = Tuning()
