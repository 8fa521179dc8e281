"""The agents: where they come from, how they are set up to work offline, and how they are called for one turn.

Each is a class with the same few members; `home` is the agent's own home directory, `url` the model's address.
"""

import json
from pathlib import Path


class Agent:
    name = ""
    npm = None
    pip = None
    program = ""
    # Tells of the starts and ends of its turns.
    hooks = True

    def __init__(self, home, url):
        self.home = Path(home)
        self.url = url

    def write(self, file, text):
        file = self.home / file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text if isinstance(text, str) else json.dumps(text, indent=2))

    def set_up(self):
        pass

    def env(self):
        return {}


class ClaudeCode(Agent):
    name, npm, program = "claude-code", "@anthropic-ai/claude-code@2.1.332", "claude"

    def env(self):
        return {"ANTHROPIC_BASE_URL": self.url, "ANTHROPIC_API_KEY": "sk-ant-none", "DISABLE_AUTOUPDATER": "1",
                "DISABLE_TELEMETRY": "1", "DISABLE_ERROR_REPORTING": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}

    def turn(self, prompt, session):
        resume = ["--resume", session] if session else []
        return ["-p", *resume, prompt, "--permission-mode", "acceptEdits", "--allowedTools", "Bash,Write,Edit"]


class Codex(Agent):
    name, npm, program = "codex", "@openai/codex@0.171.0", "codex"

    def set_up(self):
        self.write(".codex/config.toml", f"""model = "scripted"
model_provider = "test"
check_for_update_on_startup = false
[analytics]
enabled = false
[feedback]
enabled = false
[otel]
exporter = "none"
[model_providers.test]
name = "test"
base_url = "{self.url}/v1"
wire_api = "responses"
env_key = "TEST_KEY"
requires_openai_auth = false
supports_websockets = false
request_max_retries = 1
stream_max_retries = 1
""")

    def env(self):
        return {"TEST_KEY": "none"}

    def turn(self, prompt, session):
        # Trust is the user's to give; here nobody is to ask.
        free = ["--dangerously-bypass-approvals-and-sandbox", "--dangerously-bypass-hook-trust", "--skip-git-repo-check"]
        resume = ["resume", session] if session else []
        return ["exec", *free, *resume, prompt]


class Gemini(Agent):
    name, npm, program = "gemini", "@google/gemini-cli@0.61.0", "gemini"

    def set_up(self):
        self.write(".gemini/settings.json", {
            "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
            "privacy": {"usageStatisticsEnabled": False}, "telemetry": {"enabled": False},
            # It removes chats by itself that were resumed in another minute than they were begun.
            "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False, "sessionRetention": {"enabled": False}},
        })

    def env(self):
        return {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": self.url, "GEMINI_CLI_TRUST_WORKSPACE": "true"}

    def turn(self, prompt, session):
        resume = ["--resume", session] if session else []
        return ["--approval-mode", "yolo", "-m", "gemini-2.5-flash", *resume, "-p", prompt]


class Qwen(Agent):
    name, npm, program = "qwen", "@qwen-code/qwen-code@0.24.4", "qwen"

    def set_up(self):
        self.write(".qwen/settings.json", {
            "security": {"auth": {"selectedType": "openai"}}, "model": {"name": "scripted"},
            "privacy": {"usageStatisticsEnabled": False}, "telemetry": {"enabled": False},
            "general": {"enableAutoUpdate": False, "disableAutoUpdate": True},
        })

    def env(self):
        return {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": self.url + "/v1", "OPENAI_MODEL": "scripted"}

    def turn(self, prompt, session):
        resume = ["--resume", session] if session else []
        return ["--auth-type", "openai", "-y", *resume, "-p", prompt]


class Copilot(Agent):
    name, npm, program = "copilot", "@github/copilot@1.0.102", "copilot"

    def env(self):
        return {"COPILOT_OFFLINE": "true", "COPILOT_AUTO_UPDATE": "false", "COPILOT_PROVIDER_BASE_URL": self.url + "/v1",
                "COPILOT_PROVIDER_TYPE": "openai", "COPILOT_PROVIDER_API_KEY": "none", "COPILOT_MODEL": "scripted",
                "COPILOT_PROVIDER_MAX_PROMPT_TOKENS": "100000", "COPILOT_PROVIDER_MAX_OUTPUT_TOKENS": "8000"}

    def turn(self, prompt, session):
        resume = [f"--resume={session}"] if session else []
        return ["--disable-client-telemetry", "--allow-all-tools", "--allow-all-paths", *resume, "-p", prompt]


class Opencode(Agent):
    name, npm, program = "opencode", "opencode-ai@1.18.33", "opencode"
    # With a plugin it wants this package beside its settings, and would fetch it at each start.
    plugin = "@opencode-ai/plugin@1.18.33"

    def set_up(self):
        self.write(".config/opencode/opencode.json", {
            "autoupdate": False, "share": "disabled", "model": "test/scripted", "small_model": "test/scripted",
            "enabled_providers": ["test"],
            "permission": {"edit": "allow", "bash": "allow", "external_directory": "allow"},
            "provider": {"test": {
                "npm": "@ai-sdk/openai-compatible", "name": "test",
                "options": {"baseURL": self.url + "/v1", "apiKey": "none"},
                "models": {"scripted": {"name": "scripted", "limit": {"context": 100000, "output": 8000}}}}},
        })

    def env(self):
        return {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"}

    def turn(self, prompt, session):
        resume = ["--session", session] if session else []
        return ["run", *resume, prompt]


class Goose(Agent):
    name, npm, program = "goose", "@aaif/goose@0.20.1", "goose"

    def set_up(self):
        self.write(".config/goose/config.yaml", "GOOSE_PROVIDER: openai\nGOOSE_MODEL: scripted\nGOOSE_MODE: auto\n"
                   "GOOSE_TELEMETRY_ENABLED: false\nextensions:\n  developer: {enabled: true, type: builtin, name: developer, "
                   "bundled: true, timeout: 300}\n")

    def env(self):
        return {"GOOSE_DISABLE_KEYRING": "1", "GOOSE_TELEMETRY_ENABLED": "false", "OPENAI_HOST": self.url, "OPENAI_API_KEY": "none"}

    def turn(self, prompt, session):
        resume = ["--resume", "--session-id", session] if session else []
        return ["run", *resume, "-t", prompt]


class Aider(Agent):
    name, pip, program, hooks = "aider", "aider-chat==0.86.2", "aider", False

    def env(self):
        return {"OPENAI_API_KEY": "none", "OPENAI_API_BASE": self.url + "/v1", "AIDER_ANALYTICS": "false",
                "LITELLM_LOCAL_MODEL_COST_MAP": "True"}

    def turn(self, prompt, session):
        resume = ["--restore-chat-history"] if session else []
        return ["--model", "openai/aider-scripted", "--weak-model", "openai/aider-scripted", "--edit-format", "whole",
                "--yes-always", "--no-check-update", "--analytics-disable", "--no-show-model-warnings",
                "--no-show-release-notes", "--no-stream", "--no-pretty", "--no-gitignore", "--map-tokens", "0",
                *resume, "--message", prompt, "hello.txt"]


ALL = [ClaudeCode, Codex, Gemini, Qwen, Copilot, Opencode, Goose, Aider]
