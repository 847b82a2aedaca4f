"""Tokens in, tokens out: drafting, verification and the models behind them."""
