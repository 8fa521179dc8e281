"""What a request holds, in one form for all APIs: ("system" | "user" | "assistant", text), ("call", tool, arguments),
("result", text)."""


def text(value):
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(text(part) for part in value)
    if isinstance(value, dict):
        for key in ("text", "content", "output", "thinking", "parts"):
            if isinstance(value.get(key), (str, list, dict)):
                return text(value[key])
    return str(value)


def anthropic(body):
    said = [("system", text(body.get("system")))]
    for message in body.get("messages", []):
        parts = message["content"]
        for part in [{"type": "text", "text": parts}] if isinstance(parts, str) else parts:
            if part.get("type") == "tool_use":
                said.append(("call", part["name"], str(part["input"])))
            elif part.get("type") == "tool_result":
                said.append(("result", text(part.get("content"))))
            else:
                said.append((message["role"], text(part)))
    return said


def responses(body):
    said = [("system", text(body.get("instructions")))]
    given = body.get("input") or []
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else given:
        kind = item.get("type", "message")
        if kind == "message":
            role = "system" if item["role"] in ("developer", "system") else item["role"]
            parts = item["content"] if isinstance(item["content"], list) else [item["content"]]
            said.extend((role, text(part)) for part in parts)
        elif kind.endswith("_output"):
            said.append(("result", text(item.get("output"))))
        elif kind.endswith("_call"):
            said.append(("call", item.get("name", kind), text(item.get("arguments") or item.get("input"))))
    return said


def chat(body):
    said = []
    for message in body.get("messages", []):
        role = message["role"]
        if role == "tool":
            said.append(("result", text(message.get("content"))))
            continue
        if message.get("content"):
            said.append(("system" if role in ("system", "developer") else role, text(message["content"])))
        for call in message.get("tool_calls") or []:
            said.append(("call", call["function"]["name"], call["function"]["arguments"]))
    return said


def gemini(body):
    said = [("system", text(body.get("systemInstruction")))]
    for content in body.get("contents", []):
        role = "assistant" if content.get("role") == "model" else "user"
        for part in content.get("parts", []):
            if "functionCall" in part:
                said.append(("call", part["functionCall"]["name"], str(part["functionCall"].get("args"))))
            elif "functionResponse" in part:
                said.append(("result", str(part["functionResponse"].get("response"))))
            else:
                said.append((role, part.get("text", "")))
    return said


def tools(body):
    """Tools that a request offers: name to schema."""
    offered = {}
    for tool in body.get("tools") or []:
        if "functionDeclarations" in tool:
            for one in tool["functionDeclarations"]:
                offered[one["name"]] = one.get("parametersJsonSchema") or one.get("parameters") or {}
        elif isinstance(tool.get("function"), dict):
            offered[tool["function"]["name"]] = tool["function"].get("parameters") or {}
        elif tool.get("name"):
            offered[tool["name"]] = tool.get("input_schema") or tool.get("parameters") or {}
    return offered
