"""A model for tests: a server on loopback that speaks the four APIs that coding agents use, and follows a script.

It keeps no state. A request holds the whole conversation: the newest user message that names TURN-n says which turn is
meant, and the number of tool calls after it which step. So a conversation that was cut, resumed or forked gets the answer
that fits. What each request held is kept for the test to read.
"""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import answers
import conversation

SHELLS = ("Bash", "bash", "shell", "run_shell_command", "exec_command", "shell_command", "developer__shell", "local_shell")


class Model:
    """The server. `script` maps TURN-n to its steps: {"run": COMMAND} or {"say": TEXT}."""

    def __init__(self, script):
        self.script = script
        self.seen = []
        self.lock = threading.Lock()
        handler = type("Handler", (Handler,), {"model": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def forget(self):
        with self.lock:
            self.seen.clear()

    def sent(self):
        """Everything that agents sent since `forget`, as one text."""
        with self.lock:
            return "\n".join(self.seen)

    def answer(self, said, tools, name):
        """The next step of the turn: ("say", text) or ("call", tool, arguments)."""
        with self.lock:
            self.seen.append("\n".join(str(part) for part in said))
        turn, calls = None, 0
        for part in said:
            if part[0] == "user" and (named := re.findall(r"TURN-\d+", part[1])):
                turn, calls = named[-1], 0
            elif part[0] == "call":
                calls += 1
        steps = self.script.get(turn, [{"say": "Nothing to do."}])
        if "aider" in (name or ""):
            return ("say", whole_files(said, steps))
        step = steps[min(calls, len(steps) - 1)]
        shell = next((tool for tool in SHELLS if tool in tools), None)
        if "say" in step:
            return ("say", step["say"])
        # Requests for titles and summaries offer no tools.
        if shell is None:
            return ("say", "A title")
        return ("call", shell, arguments(tools[shell], step["run"]))


def arguments(schema, command):
    """What the tool's schema wants for a command."""
    known = schema.get("properties", {})
    if known.get("command", {}).get("type") == "array":
        return {"command": ["bash", "-lc", command]}
    wanted = {"command": command, "cmd": command, "description": "scripted", "is_background": False, "mode": "sync"}
    given = {name: value for name, value in wanted.items() if not known or name in known}
    for name in schema.get("required", []):
        given.setdefault(name, "scripted")
    return given


def whole_files(said, steps):
    """aider has no tools: it takes whole files out of the text."""
    system = " ".join(part[1] for part in said if part[0] == "system")
    if "commit message" in system[:400]:
        return "chore: scripted"
    text = [step["say"] for step in steps if "say" in step]
    for step in steps:
        for content, file in re.findall(r"echo (\w+) > (\S+)", step.get("run", "")):
            text.append(f"{file}\n```\n{content}\n```\n")
    return "\n".join(text)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model = None

    def log_message(self, *_):
        pass

    def do_GET(self):
        if urlsplit(self.path).path.endswith("/models"):
            self.json({"object": "list", "data": [{"id": "scripted", "object": "model", "created": 1, "owned_by": "test"}]})
        else:
            self.json({})

    do_HEAD = do_GET

    def do_POST(self):
        raw = self.body()
        path = urlsplit(self.path).path
        try:
            body = json.loads(raw)
            if path.endswith("/count_tokens"):
                return self.json({"input_tokens": 100})
            if path.endswith(":countTokens"):
                return self.json({"totalTokens": 100})
            api = next((name for name, ending in ENDINGS.items() if re.search(ending, path)), None)
            if api is None:
                return self.json({"error": {"message": f"no route {path}"}}, 404)
            said = getattr(conversation, api)(body)
            step = self.model.answer(said, conversation.tools(body), body.get("model") or path)
            stream = body.get("stream") or "stream" in path
            getattr(answers, api)(self, body, step, stream)
        except (BrokenPipeError, ConnectionResetError):
            pass
        except ValueError as error:
            self.json({"error": {"message": str(error)}}, 400)

    def body(self):
        if "chunked" in (self.headers.get("transfer-encoding") or "").lower():
            parts = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return parts
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        if "gzip" in (self.headers.get("content-encoding") or ""):
            import gzip
            raw = gzip.decompress(raw)
        return raw

    def json(self, value, code=200):
        data = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def events(self):
        """Begins a stream; gives the function that sends one event."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True

        def send(value, event=None):
            data = value if isinstance(value, str) else json.dumps(value)
            self.wfile.write(((f"event: {event}\n" if event else "") + f"data: {data}\n\n").encode())
            self.wfile.flush()

        return send


ENDINGS = {
    "anthropic": r"/messages$",
    "responses": r"/responses$",
    "chat": r"/chat/completions$",
    "gemini": r"/models/[^/:]+:(streamG|g)enerateContent$",
}
