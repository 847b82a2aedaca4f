"""The class of a turn: turns of one class are drafted for about equally well, so history sorts by it.

Spec-Bench (arXiv 2401.07851) and DEL (arXiv 2504.05598) both find that the kind of task decides how
much of a draft is accepted. The class is guessed from a few words; a wrong guess costs some speed at
the start of one answer, never a token.
"""

import re
from collections.abc import Sequence
from enum import StrEnum

from app.request import Message
from engine.request import SamplingParams

HEAD, TAIL = 320, 200  # characters of a long message that are read: the instructions are there
COOL = 0.8  # the warmest temperature that is still called cool
FOLLOW_UP = 120  # characters of the longest message that is read as "continue like that"
MATERIAL = 6  # characters of the shortest text that something can be done with


class TaskClass(StrEnum):
    """What the answer will mostly consist of."""

    CODE = "code"
    MATHS = "maths"
    EDIT = "edit"  # parts of a text that is in the prompt: copied, renamed, quoted, summarised
    CHAT = "chat"  # everything else


class TemperatureClass(StrEnum):
    """How freely tokens are drawn; a seed changes how drafts are made, and so what is accepted."""

    GREEDY = "greedy"
    COOL = "cool"
    COOL_SEEDED = "cool, seeded"
    HOT = "hot"
    HOT_SEEDED = "hot, seeded"


# Where an instruction may begin: a line, a sentence, or after the polite words before a verb.
_BEGIN = (
    r"(?:^|[.!?:;,\n]\s*|\b(?:please|kindly|now|then|just|to|and|(?:can|could|would|will) you(?: please)?)"
    r",?\s+)"
)
_FORMATS = (
    r"json|yaml|csv|xml|html|markdown|latex|(?:a |an )?(?:\w+ )?(?:tables?|lists?|arrays?|bullets?|"
    r"bullet points|upper ?case|lower ?case|title case|snake_case|camelcase)"
)
_EDIT = re.compile(
    _BEGIN + r"(?:"
    r"repeat|copy|quote|rename|proofread|paraphrase|rephrase|re-?format|rewrite|re-?word|"
    r"summari[sz]e|shorten|condense|abridge|simplify|extract|alphabeti[sz]e|sort|anonymi[sz]e|"
    r"capitali[sz]e|redact|tl;?dr|"
    r"replace\b.{1,60}?\b(?:with|by)|(?:remove|delete|drop)\b.{1,60}?\bfrom|"
    r"add (?:\w+ )?(?:docstrings?|type hints|annotations|comments|punctuation)|"
    r"make (?:this|the following|my)\b.{1,40}?\b(?:more|less|shorter|sound|friendlier|simpler)|"
    r"(?:change|substitute)\b.{1,60}?\b(?:to|for|into)|"
    r"(?:say|write|type|print|give|state)(?: me)? (?:this|these|the following|that)\b|"
    r"put (?:this|these|the following|them)\b|"
    r"(?:make|turn|convert|write|return|format|express|transform)\b.{0,60}?"
    rf"\b(?:in|into|to|as) (?:{_FORMATS})|"
    r"make (?:a|an) (?:numbered|bulleted|sorted|alphabetical) list|"
    r"(?:give|return|list|pick out|pull out|highlight|find|identify|write)\b.{0,60}?"
    r"\b(?:(?:as|in) (?:json|csv|yaml|xml)|sentences? (?:with|that|about|which)|mentioned|in the (?:text|passage))|"
    r"(?:correct|fix|check|improve|polish|edit)\b.{0,40}?"
    r"\b(?:grammar|spelling|typos?|punctuation|wording|style|tone|text|paragraph|essay|e-?mail|letter)|"
    r"(?:which|what) sentences? (?:mention|contain|say|talk|is)|"
    r"(?:write|give|make|provide|create)(?: me)?(?: a| an)?(?: \w+){0,2} summary"
    r")\b",
    re.DOTALL,
)
# An instruction about what was said before, rather than about a text that follows it.
_BACK = re.compile(
    r"\b(?:your|the|that|this) (?:\w+ )?(?:answer|response|reply|text|story|essay|e-?mail|letter|list|"
    r"poem|paragraph|conversation|code|function|version|summary)\b|\b(?:above|it|that|this|them)\b"
)
_RESHAPE = re.compile(
    _BEGIN + r"(?:make (?:it|that|them|the|your)|shorter|longer|again\b|"
    r"translate (?:it|that)|use (?:a )?(?:friendlier|simpler|more formal))"
)

_LANGUAGE = (
    r"python|javascript|typescript|java|c\+\+|cpp|c#|golang|rust|kotlin|swift|php|ruby|perl|bash|shell|"
    r"powershell|sql|html|css|react|django|flask|numpy|pandas|pytorch|haskell|scala|lua|matlab|regexp?|"
    r"dockerfile|makefile|fortran|assembly|vba|excel formula"
)
_THING = (
    r"code|function|functions|method|class|program|script|query|snippet|unit tests?|algorithm|api|"
    r"endpoint|decorator|regexp?|regular expression|one-?liner|library|module|command|loop|parser|macro"
)
_WRITE_CODE = re.compile(
    _BEGIN
    + r"(?:write|implement|create|code|program|develop|design|build|define|generate|make|give|"
    r"show|add|refactor|debug|fix|optimi[sz]e|port|explain|complete|use|how (?:do|can|would|to))\b"
    rf".{{0,80}}?(?<!\w)(?:{_LANGUAGE}|{_THING})(?!\w)",
    re.DOTALL,
)
_ABOUT_CODE = re.compile(
    rf"(?<!\w)(?:{_LANGUAGE})(?!\w).{{0,80}}?\b(?:{_THING}|error|exception|bug|string|list|array|dict|"
    rf"dataframe|tuple|integer|variable|file|table|column)\b|\b(?:{_THING}|error|exception|bug|syntax|"
    rf"loops?|in|using|with)\b (?:in |of |for |with )?(?<!\w)(?:{_LANGUAGE})(?!\w)|\btraceback\b|"
    r"\bstack trace\b|\bsegfault|\b(?:type|value|key|index|syntax|attribute|import|runtime)error\b|"
    r"\b(?:implement|refactor|debug|compile)\b.{0,60}?\b(?:sort|search|tree|graph|list|stack|queue|"
    r"cache|hash|heap|solver|server|client|function|class|code|loop)\b|\bleetcode\b|"
    r"\b(?:my|this|the following) (?:code|function|script|query)\b",
    re.DOTALL,
)
_SOURCE = re.compile(
    r"^\s*(?:def \w+\(|class \w+[:(]|import \w+|from [\w.]+ import |#include\s*<|public (?:class|static)|"
    r"function \w+\(|(?:const|let|var) \w+ ?=|fn \w+\(|func \w+\(|select .+ from |create table |"
    r"<\w+[^>]*>\s*$|@\w+\s*$|#!/)|[;{]\s*$",
    re.MULTILINE,
)

_NUMBER = re.compile(
    r"\d|\b(?:two|three|four|five|six|seven|eight|nine|ten|twelve|twenty|hundred|thousand|half|twice|"
    r"double|triple|third|quarter|dozens?|percent)\b"
)
_SUM = re.compile(
    r"\d ?% of |\d\s*(?:[+*/\u00d7\u00f7^=]|-\s|\bplus\b|\bminus\b|\btimes\b|\bdivided by\b|\bmultiplied by\b)\s*[(\d?x]"
    r"|\b[xyzn]\s*(?:[\^=<>]|[+*/-]\s*\d)|\d[xyzn]\b|\bf\(\w\)|\\(?:frac|int|sum|sqrt|cdot|boxed|lim|begin)\b|√|∫|∑|π"
)
_ASKS_NUMBER = re.compile(
    r"\bhow (?:many|much|long|far|fast|old|tall|heavy|big|large)\b|\bpercent(?:age)?\b|"
    r"\bwhat(?:'s| is| was| are| were| will be| would be)\b.{0,80}?\b(?:total|sum|average|mean|median|speed|cost|"
    r"price|profit|area|perimeter|volume|value|ratio|difference|probability|number|amount|savings|"
    r"remainder|product|distance|length|age|rate|weight)\b|\b(?:calculate|compute|evaluate|solve|"
    r"determine|estimate|find) |\bconvert\b|\b\d+ \w+ (?:in|to) \w+\?|\bwork out\b",
    re.DOTALL,
)
_MATHS_TERMS = re.compile(
    r"\b(?:equations?|inequalit(?:y|ies)|integrals?|integrate|derivatives?|differentiate|polynomials?|"
    r"matri(?:x|ces)|determinant|eigenvalues?|logarithm|theorem|lemma|hypotenuse|triangle|trigonometr\w+|"
    r"prime numbers?|primes|divisible|modulo|factori[sz]e|factorial|quadratic|square root|cube root|"
    r"permutations?|combinatorics|arithmetic|algebra|calculus|geometric series|standard deviation|"
    r"prove that|proof that|probability)\b"
)


def task_class(messages: Sequence[Message]) -> TaskClass:
    """The class of the last user message, read in the light of what was said before it.

    Looks at the ends of that message only, so a long text costs no more than a short one.
    """
    asked = [at for at, message in enumerate(messages) if message.role == "user"]
    if not asked:
        return TaskClass.CHAT
    text = messages[asked[-1]].content.strip()
    answered = [m.content for m in messages[: asked[-1]] if m.role == "assistant"]
    own = _own_class(_ends(text), answered=bool(answered))
    if own is TaskClass.CHAT and answered and _goes_on(text):
        return _class_of_answer(answered[-1])
    return own


def temperature_class(sampling: SamplingParams) -> TemperatureClass:
    """How freely the tokens are drawn, in five steps."""
    if sampling.greedy:
        return TemperatureClass.GREEDY
    cool = sampling.temperature <= COOL
    if sampling.seed is None:
        return TemperatureClass.COOL if cool else TemperatureClass.HOT
    return TemperatureClass.COOL_SEEDED if cool else TemperatureClass.HOT_SEEDED


def _ends(text: str) -> str:
    if len(text) <= HEAD + TAIL:
        return text.lower()
    return f"{text[:HEAD]}\n{text[-TAIL:]}".lower()


def _own_class(text: str, *, answered: bool) -> TaskClass:
    """What the words say; the order settles what is several things at once."""
    if _edits(text, answered=answered):
        return TaskClass.EDIT
    if _is_code(text):
        return TaskClass.CODE
    if _is_maths(text):
        return TaskClass.MATHS
    return TaskClass.CHAT


def _edits(text: str, *, answered: bool) -> bool:
    """An instruction to rework a text, and a text to rework: in this message or said before."""
    found = _EDIT.search(text)
    if found is None:
        return answered and len(text) <= FOLLOW_UP and bool(_RESHAPE.search(text))
    if answered and _BACK.search(text, found.start()):
        return True
    before, after = text[: found.start()].strip(), text[found.start() + 1 :]
    if found.start() > 0 and "\n" in text[: found.end()] and len(before) > MATERIAL:
        return True  # the text comes before the instruction
    if len(text) == HEAD + TAIL + 1:
        return True  # a long message that asks for an edit brings its own text
    cut = re.search(r"[:\n\"“«]", after)
    return cut is not None and len(after) - cut.end() >= MATERIAL


def _is_code(text: str) -> bool:
    return "```" in text or any(sign.search(text) for sign in (_SOURCE, _WRITE_CODE, _ABOUT_CODE))


def _is_maths(text: str) -> bool:
    if _SUM.search(text) or (_MATHS_TERMS.search(text) and not text.startswith(("who", "tell me"))):
        return True
    numbers = len(_NUMBER.findall(text))
    return numbers > 0 and bool(_ASKS_NUMBER.search(text))


def _goes_on(text: str) -> bool:
    """A short request that needs the messages before it; thanks and greetings do not."""
    idle = re.match(
        r"(?:thanks|thank you|ok|okay|great|hi|hello|hey|bye|good|nice|cool)\b", text, re.I
    )
    return len(text) <= FOLLOW_UP and idle is None


def _class_of_answer(answer: str) -> TaskClass:
    """What a short request after this answer most likely asks for more of."""
    if "```" in answer or _SOURCE.search(_ends(answer)):
        return TaskClass.CODE
    return TaskClass.MATHS if _SUM.search(_ends(answer)) else TaskClass.CHAT
