"""What an empty page offers: three things that the bundled model is good at."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A message that is sent when its title is chosen."""

    title: str
    hint: str
    prompt: str

    @property
    def label(self) -> str:
        """Title and hint, a line each."""
        return f"{self.title}\n{self.hint}"


_CODE = '''Rename the variable items to words:
def longest(items):
    """Return the longest of the items, or None."""
    best = None
    for item in items:
        if best is None or len(item) > len(best):
            best = item
    return best'''

_PROBLEM = (
    "A farmer has 12 hens and each hen lays 5 eggs a week. He sells 40 eggs. "
    "How many eggs are left?"
)

SUGGESTIONS = (
    Suggestion("Rename a variable", "In a short function; most of the answer is a copy.", _CODE),
    Suggestion("Count eggs", "A word problem of twelve hens and one farmer.", _PROBLEM),
    Suggestion("Say hello", "And ask what this model is good at.", "Hello, what can you do?"),
)
