"""Texts for the tests of slots, and what a model reads of them."""


def text(seed, length):
    """Tokens in which no part returns soon."""
    return tuple((seed * i + seed + i * i // 7) % 13 for i in range(length))


def gguf_text(seed, length):
    """The same for the bundled tokenizer."""
    return tuple((37 * i + seed) % 4000 + 10 for i in range(length))


def fed_from_now_on(model):
    """The list of tokens that the model is fed after this call, and of those that a prompt ends with."""
    fed, feed, decode = [], model.feed, model.decode
    model.feed = lambda slot, tokens: fed.extend(tokens) or feed(slot, tokens)
    model.decode = lambda slot, tokens: fed.extend(tokens[:-1]) or decode(slot, tokens)
    return fed
