"""Text in and out: tokenizer, chat template, reasoning, tool calls, output formats."""
