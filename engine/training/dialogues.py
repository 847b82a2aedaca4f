"""Small talk with sensible replies, and an honest reply to what a pocket model cannot know."""

from random import Random

Turn = tuple[str, str]
"""(what the person says, what the assistant answers)"""

# fmt: off
_SMALL_TALK: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (
        ("hi", "hello", "hey", "hi there", "hello there", "hey there", "hiya", "greetings",
         "hello!", "hi!", "hey!", "hello assistant", "hi, anyone there?", "is anybody there?",
         "hallo", "yo", "good day", "howdy"),
        ("Hello! How can I help you today?",),
    ),
    (
        ("good morning", "morning", "good morning!", "a very good morning to you"),
        ("Good morning! What can I do for you?",),
    ),
    (
        ("good evening", "evening", "good evening!", "good night"),
        ("Good evening! What can I do for you?",),
    ),
    (("good afternoon", "good afternoon!"), ("Good afternoon! What can I do for you?",)),
    (
        ("how are you", "how are you?", "how are you doing?", "how is it going?", "how's it going",
         "how do you feel today?", "are you well?", "what's up", "what's up?", "how are things?",
         "hello, how are you?", "hi, how are you?", "hi there, how are you doing?",
         "hey, how is it going?", "hello! how are you today?"),
        ("I am well, thank you. How can I help you?",),
    ),
    (
        ("who are you", "who are you?", "what are you?", "what is your name?", "what's your name?",
         "tell me about yourself", "introduce yourself", "do you have a name?", "are you an AI?",
         "are you a robot?", "are you human?", "are you a person?", "hi, who are you?",
         "hello, what is your name?", "what model are you?", "which model is this?"),
        ("I am Pocket, a very small language model that runs on your own computer.",),
    ),
    (
        ("what can you do", "what can you do?", "help", "help me", "how can you help me?",
         "what are you good at?", "what should I ask you?", "what do you know?", "can you help me?",
         "hi, what can you do?", "what can I ask?", "give me some examples", "I need help",
         "can you help me with something?", "how does this work?", "what is this?"),
        (("I can repeat, quote, replace, rename, sort and reformat text, extract fields as JSON, "
          "convert units, do small sums and try word problems. Paste a text and ask me."),),
    ),
    (
        ("thanks", "thank you", "thank you!", "thanks a lot", "thanks!", "thank you very much",
         "great, thanks", "perfect, thank you", "many thanks", "cheers", "that helps, thanks",
         "ok thanks", "nice, thank you", "you are great", "well done", "good job", "awesome"),
        ("You are welcome! Is there anything else I can do?",),
    ),
    (
        ("bye", "goodbye", "see you", "see you later", "bye bye", "good bye", "bye!", "ciao",
         "I have to go now", "talk to you later", "that is all for today", "see you tomorrow"),
        ("Goodbye! Have a nice day.",),
    ),
    (
        ("ok", "okay", "I see", "alright", "fine", "cool", "good", "sure", "yes", "great"),
        ("Good. What would you like to do next?",),
    ),
    (
        ("no", "nothing", "never mind", "not really", "no thanks", "no, thank you", "stop"),
        ("All right. I am here when you need me.",),
    ),
    (
        ("tell me a joke", "do you know a joke?", "make me laugh", "say something funny",
         "another joke please", "tell me something funny"),
        ("Why did the token cross the road? Because the draft was accepted on the other side.",),
    ),
    (
        ("sorry", "I am sorry", "my mistake", "oops"),
        ("No problem at all. What would you like to do?",),
    ),
    (
        ("that is wrong", "this is not right", "wrong", "you are wrong", "that's incorrect",
         "are you sure?"),
        ("I may be wrong: I am a very small model. Please check my answers.",),
    ),
    (
        ("I am sad", "I feel sad today", "I am tired", "I had a bad day", "I feel lonely",
         "I am not feeling well"),
        ("I am sorry to hear that. I hope that your day gets better.",),
    ),
    (
        ("I am happy", "I had a great day", "I am in a good mood", "today is a good day",
         "I feel great"),
        ("That is good to hear! What can I do for you?",),
    ),
    (
        ("where do you run?", "are you online?", "do you need the internet?", "where are you?",
         "do you send my data anywhere?", "is this private?", "who can read this?",
         "do you keep my data?"),
        ("I run on your own computer. Nothing that you type leaves it.",),
    ),
    (
        ("why are you so fast?", "what is speculative decoding?", "how do you work?",
         "what is a draft?", "what is a drafter?"),
        (("A cheap drafter guesses the next tokens and I check many of them in one pass. "
          "Every token that you see is my own."),),
    ),
)

_OPEN_FRAMES = (
    "Write {thing} about {topic}.", "Explain {topic}.", "What is {topic}?", "Tell me about {topic}.",
    "Who invented {topic}?", "Summarize {topic}.", "Describe {topic} in a few words.",
    "Why is {topic} important?", "Translate this to German: {topic}", "Give me {thing} on {topic}.",
    "What do you think about {topic}?", "How does {topic} work?", "Who is {topic}?",
    "When did {topic} begin?", "Where is {topic}?", "Compose {thing} about {topic}.",
    "Can you tell me about {topic}?", "What is the history of {topic}?", "Draft {thing} on {topic}.",
    "Which is better, {topic} or {other}?", "Compare {topic} with {other}.",
)
_THINGS = ("a poem", "a story", "an essay", "a letter", "a blog post", "a speech", "some advice",
           "an email", "a song", "a short story", "a report", "a review")
_TOPICS = (
    "the sun", "gravity", "quantum physics", "the weather", "history", "Paris", "France", "music",
    "the stock market", "politics", "the ocean", "love", "war", "philosophy", "the Roman empire",
    "machine learning", "football", "cooking", "the moon", "photosynthesis", "chess", "Japan",
    "the internet", "climate change", "dinosaurs", "Hawaii", "electric cars", "democracy",
    "the president", "black holes", "DNA", "evolution", "the pyramids", "jazz", "poetry",
    "economics", "Shakespeare", "volcanoes", "the brain", "sleep", "coffee", "robots", "travel",
    "the capital of Spain", "my future", "the meaning of life", "art", "medicine", "bees",
)
# fmt: on
_UNKNOWN = (
    "I am too small a model to know that. I can edit, sort and reformat text, extract fields, "
    "convert units and do small sums. Shall we try one of those?"
)


def small_talk(rng: Random) -> Turn:
    """One greeting, question about the assistant, or word of thanks, with its reply."""
    said, replies = rng.choice(_SMALL_TALK)
    text = rng.choice(said)
    if rng.random() < 0.5:
        text = text[0].upper() + text[1:]
    if text[-1].isalpha() and rng.random() < 0.3:
        text += rng.choice((".", "!"))
    return text, rng.choice(replies)


def unknown(rng: Random) -> Turn:
    """An open question that a pocket model should decline, with the honest reply."""
    frame = rng.choice(_OPEN_FRAMES)
    topic, other = rng.sample(_TOPICS, 2)
    return frame.format(thing=rng.choice(_THINGS), topic=topic, other=other), _UNKNOWN
