#!/usr/bin/env python3
"""Real agents under stepback: two turns each, against a model on loopback. The second turn is taken back, files and
conversation, and the agent goes on: what it sends then must hold turn 1 and nothing of turn 2.

    run.py --bin DIR [--cache DIR] [AGENT ...]

Installs the agents from npm and PyPI into the cache, unless they are there. Each agent gets a home and a project of its own;
where the system lets us, nothing but 127.0.0.1 can be reached.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import agents
from model import Model

SCRIPT = {
    "TURN-1": [{"run": "echo one > hello.txt"}, {"say": "Done with one. ANSWER-1"}],
    "TURN-2": [{"run": "echo two > hello.txt"}, {"run": "mkdir -p made/deep && echo x > made/deep/by-shell"},
               {"say": "Done with two. ANSWER-2"}],
    "TURN-3": [{"say": "Done with three. ANSWER-3"}],
}
TURN_SECONDS = 180


class Failed(Exception):
    """A check that doesn't hold."""


def isolated(arguments):
    """Starts us again where only loopback exists, and where all processes end with us."""
    if os.environ.get("STEPBACK_ISOLATED") or os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("ip"):
        return
    os.environ["STEPBACK_ISOLATED"] = "1"
    inner = 'ip link set lo up; exec "$@"'
    os.execvp("unshare", ["unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child",
                          "sh", "-c", inner, "sh", sys.executable, *arguments])


def install(agent, cache):
    """The program, installed if it must be; None where the registry doesn't give it."""
    where = cache / agent.name
    program = where / ("venv/bin" if agent.pip else "node_modules/.bin") / agent.program
    if program.exists():
        return program
    where.mkdir(parents=True, exist_ok=True)
    log = where / "install.log"
    if agent.pip:
        commands = [[sys.executable, "-m", "venv", "venv"], ["venv/bin/pip", "-q", "install", agent.pip]]
    else:
        (where / "package.json").write_text('{"private": true}\n')
        commands = [["npm", "install", "--no-audit", "--no-fund", agent.npm]]
        if plugin := getattr(agent, "plugin", None):
            commands[0].append(plugin)
    with log.open("w") as to:
        for command in commands:
            if subprocess.run(command, cwd=where, stdout=to, stderr=to).returncode != 0:
                print(f"{agent.name}: not installed, see {log}")
                return None
    return program if program.exists() else None


class Sandbox:
    """A home, a project and a daemon of their own."""

    def __init__(self, dir, bin, program, agent_class, url):
        self.home = dir / "home"
        # As awkward as projects' names are.
        self.project = dir / "my project_v1.2 é"
        self.bin = bin
        self.program = program
        for made in (self.home, self.project, dir / "run"):
            made.mkdir(mode=0o700)
        self.agent = agent_class(self.home, url)
        self.agent.set_up()
        path = os.pathsep.join([str(bin), str(program.parent), os.environ["PATH"]])
        self.env = {"HOME": str(self.home), "PATH": path, "TERM": "dumb", "LANG": "C.UTF-8", "XDG_RUNTIME_DIR": str(dir / "run"),
                    "GIT_AUTHOR_NAME": "Ann", "GIT_AUTHOR_EMAIL": "ann@example.org", "GIT_COMMITTER_NAME": "Ann",
                    "GIT_COMMITTER_EMAIL": "ann@example.org", **self.agent.env()}

    def run(self, *command, check=True):
        done = subprocess.run(command, cwd=self.project, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=TURN_SECONDS)
        if check and done.returncode != 0:
            said = (done.stdout + done.stderr).strip()[-800:]
            raise Failed(f"{' '.join(command[:4])} ... exits {done.returncode}: {said}")
        return done

    def stepback(self, *arguments):
        return json.loads(self.run("stepback", "--json", *arguments).stdout)

    def turn(self, name, prompt, session=None):
        """A turn of the agent as a session of stepback's."""
        return self.run("stepback", "run", "--name", name, "--", str(self.program), *self.agent.turn(prompt, session))

    def read(self, file):
        try:
            return (self.project / file).read_text()
        except FileNotFoundError:
            return None

    def transcripts(self):
        """Every file of the agent that holds turn 1, with its bytes."""
        found = {}
        for base in (self.home, self.project):
            for file in base.rglob("*"):
                if file.is_file() and ".local/state/stepback" not in str(file) and ".git/" not in str(file):
                    data = file.read_bytes()
                    if b"ANSWER-1" in data:
                        found[file] = data
        return found


def expect(holds, what):
    if not holds:
        raise Failed(what)


def checks(sandbox, model):
    """The checks of one agent, in order: names, and functions that raise Failed."""
    agent = sandbox.agent
    known = {}

    def turn_1():
        sandbox.run("git", "init", "-q")
        sandbox.run("git", "commit", "-q", "--allow-empty", "-m", "base")
        sandbox.stepback("attach", "--here", "-y")
        if agent.hooks:
            sandbox.stepback("hooks", "install", agent.name, "-y")
            plugin = sandbox.program.parent.parent / "@opencode-ai"
            if agent.name == "opencode" and plugin.is_dir():
                shutil.copytree(sandbox.program.parent.parent, sandbox.home / ".config/opencode/node_modules", symlinks=True)
        sandbox.turn("t1", "TURN-1 please make the file")
        expect(sandbox.read("hello.txt") == "one\n", f"hello.txt holds {sandbox.read('hello.txt')!r}")

    def kept():
        listed = sandbox.stepback("list")["checkpoints"]
        found = [c for c in listed if any(talk["agent"] == agent.name for talk in c["conversation"])]
        expect(found, "no checkpoint has its conversation")
        known["session"] = found[0]["conversation"][0]["session"]

    def turn_2():
        sandbox.turn("t2", "TURN-2 please change it", known["session"])
        expect(sandbox.read("hello.txt") == "two\n", f"hello.txt holds {sandbox.read('hello.txt')!r}")
        expect(sandbox.read("made/deep/by-shell") == "x\n", "the shell's file isn't there")

    def labelled():
        if not agent.hooks:
            return "none"
        ours = [c for c in sandbox.stepback("list")["checkpoints"] if c["agent"] == agent.name]
        starts = {c["turn"]: c for c in ours if c["trigger"] == "turn-start"}
        ends = {c["turn"]: c for c in ours if c["trigger"] == "turn-end"}
        expect(set(starts) >= {1, 2}, f"turns that began: {sorted(starts)}")
        expect(set(ends) >= {1, 2}, f"turns that ended: {sorted(ends)}")
        for turn in (1, 2):
            prompt = starts[turn]["prompt"] or ""
            expect(f"TURN-{turn}" in prompt, f"the prompt of turn {turn} is {prompt!r}")
            expect(ends[turn]["tools"], f"turn {turn} names no tools")
        return None

    def rewound():
        known["before"] = sandbox.transcripts()
        target = "turn:2" if agent.hooks else "session:t2"
        report = sandbox.stepback("rewind", target, "-y")
        expect(sandbox.read("hello.txt") == "one\n" and sandbox.read("made") is None, "the files aren't as of turn 1")
        expect(not (sandbox.project / "made").exists(), "a directory of turn 2 is there")
        talks = [talk for talk in report["conversation"] if talk["agent"] == agent.name]
        expect(talks, "the report names no conversation")
        expect("resume" in talks[0] and talks[0]["resume"], f"no resume command: {talks}")
        known["resume"] = talks[0]["resume"]

    def redone():
        sandbox.stepback("redo", "-y")
        expect(sandbox.read("hello.txt") == "two\n", "redo didn't bring the files back")
        differs = [str(file) for file, data in known["before"].items()
                   if not file.name.endswith((".db", "-wal", "-shm")) and file.read_bytes() != data]
        expect(not differs, f"not as before: {differs}")
        sandbox.stepback("rewind", "turn:2" if agent.hooks else "session:t2", "-y")

    def resumed():
        model.forget()
        session = known["session"]
        expect(agent.name == "aider" or session in known["resume"], f"{known['resume']} doesn't name {session}")
        sandbox.turn("t3", "TURN-3 go on", session)
        sent = model.sent()
        expect("TURN-3" in sent, "nothing was sent")
        expect("TURN-1" in sent and "ANSWER-1" in sent, "turn 1 was forgotten")
        expect("TURN-2" not in sent and "ANSWER-2" not in sent, "turn 2 was sent")

    return [("turn 1", turn_1), ("kept", kept), ("turn 2", turn_2), ("labelled", labelled), ("rewound", rewound),
            ("redone", redone), ("resumed", resumed)]


def try_agent(agent_class, program, bin):
    """Runs the checks; a word for each, and why it failed."""
    words = []
    with tempfile.TemporaryDirectory(prefix="sb-agents-", ignore_cleanup_errors=True) as dir:
        model = Model(SCRIPT)
        sandbox = Sandbox(Path(dir), bin, program, agent_class, model.url)
        try:
            for name, check in checks(sandbox, model):
                try:
                    words.append((name, check() or "ok", ""))
                except (Failed, subprocess.TimeoutExpired, ValueError, KeyError) as error:
                    words.append((name, "FAILED", str(error)))
                    break
        finally:
            sandbox.run("stepback", "daemon", "stop", check=False)
            model.stop()
    return words


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True, help="the directory of both programs")
    parser.add_argument("--cache", type=Path, default=Path("target/agents"), help="where agents are installed")
    parser.add_argument("agent", nargs="*", help="only these")
    args = parser.parse_args()
    bin, cache = args.bin.resolve(), args.cache.resolve()
    wanted = [a for a in agents.ALL if not args.agent or a.name in args.agent]
    if not os.environ.get("STEPBACK_ISOLATED"):
        for agent in wanted:
            install(agent, cache)
    isolated([str(Path(__file__).resolve()), "--bin", str(bin), "--cache", str(cache), *args.agent])
    failed, rows = False, []
    for agent in wanted:
        program = install(agent, cache)
        if program is None:
            rows.append((agent.name, [], "not installed"))
            continue
        words = try_agent(agent, program, bin)
        failed |= any(word == "FAILED" for _, word, _ in words)
        rows.append((agent.name, words, ""))
        print(f"{agent.name}: " + ", ".join(f"{name} {word}" for name, word, _ in words), flush=True)
        for name, word, why in words:
            if why:
                print(f"  {name}: {why}", flush=True)
    names = ["turn 1", "kept", "turn 2", "labelled", "rewound", "redone", "resumed"]
    print("\n| agent | " + " | ".join(names) + " |\n|---|" + "---|" * len(names))
    for agent, words, note in rows:
        known = {name: word for name, word, _ in words}
        print(f"| {agent} | " + " | ".join(known.get(name, note or "-") for name in names) + " |")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
