"""A stand-in for llama-server: its help, its health, and answers that count up from the prompt's last token."""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

HELP = """usage: llama-server
--spec-type none,ngram-simple,ngram-mod
                                 type of speculative decoding, like ngram-simple
-t,    --threads N               number of threads
"""


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *told) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()
        last = asked["prompt"][-1]
        assert asked["cache_prompt"] is False
        for place in range(asked["n_predict"]):
            self.say({"tokens": [last + 1 + place], "stop": False})
        timings = {"draft_n": 7, "draft_n_accepted": 5}
        self.say({"tokens": [], "stop": True, "stop_type": "limit", "timings": timings})

    def say(self, event) -> None:
        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())


if __name__ == "__main__":
    if "--help" in sys.argv:
        sys.stdout.write(HELP)
    elif "ngram-mod" in sys.argv:
        sys.exit("no such file")
    else:
        port = int(sys.argv[sys.argv.index("--port") + 1])
        HTTPServer(("127.0.0.1", port), Handler).serve_forever()
