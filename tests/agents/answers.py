"""One step of the script in each API's words, whole or as a stream."""

import itertools
import json
import time
import uuid


def name(prefix):
    return prefix + uuid.uuid4().hex[:24]


def anthropic(to, body, step, stream):
    usage = {"input_tokens": 50, "output_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    if step[0] == "say":
        block, stop = {"type": "text", "text": step[1]}, "end_turn"
        begun, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": step[1]}
    else:
        block, stop = {"type": "tool_use", "id": name("toolu_"), "name": step[1], "input": step[2]}, "tool_use"
        begun, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(step[2])}
    message = {"id": name("msg_"), "type": "message", "role": "assistant", "model": body.get("model"), "content": [block],
               "stop_reason": stop, "stop_sequence": None, "usage": usage}
    if not stream:
        return to.json(message)
    send = to.events()

    def event(kind, **more):
        send({"type": kind, **more}, kind)

    event("message_start", message={**message, "content": [], "stop_reason": None})
    event("content_block_start", index=0, content_block=begun)
    event("content_block_delta", index=0, delta=delta)
    event("content_block_stop", index=0)
    event("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage=usage)
    event("message_stop")


def responses(to, body, step, stream):
    if step[0] == "say":
        item = {"type": "message", "id": name("msg_"), "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": step[1], "annotations": []}]}
    else:
        item = {"type": "function_call", "id": name("fc_"), "call_id": name("call_"), "name": step[1],
                "arguments": json.dumps(step[2]), "status": "completed"}
    usage = {"input_tokens": 50, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 10,
             "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 60}
    response = {"id": name("resp_"), "object": "response", "created_at": int(time.time()), "status": "completed",
                "model": body.get("model"), "output": [item], "usage": usage, "parallel_tool_calls": False, "tools": []}
    if not stream:
        return to.json(response)
    send, numbers = to.events(), itertools.count()

    def event(kind, **more):
        send({"type": kind, "sequence_number": next(numbers), **more}, kind)

    event("response.created", response={**response, "status": "in_progress", "output": [], "usage": None})
    begun = {**item, "status": "in_progress"}
    if step[0] == "say":
        where = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        event("response.output_item.added", output_index=0, item={**begun, "content": []})
        event("response.content_part.added", part={"type": "output_text", "text": "", "annotations": []}, **where)
        event("response.output_text.delta", delta=step[1], **where)
        event("response.output_text.done", text=step[1], **where)
    else:
        where = {"item_id": item["id"], "output_index": 0}
        event("response.output_item.added", output_index=0, item=begun)
        event("response.function_call_arguments.delta", delta=item["arguments"], **where)
        event("response.function_call_arguments.done", arguments=item["arguments"], **where)
    event("response.output_item.done", output_index=0, item=item)
    event("response.completed", response=response)


def chat(to, body, step, stream):
    usage = {"prompt_tokens": 50, "completion_tokens": 10, "total_tokens": 60}
    if step[0] == "say":
        message, reason = {"role": "assistant", "content": step[1]}, "stop"
        deltas = [{"role": "assistant", "content": ""}, {"content": step[1]}]
    else:
        call = {"id": name("call_"), "type": "function", "function": {"name": step[1], "arguments": json.dumps(step[2])}}
        message, reason = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
        deltas = [{"role": "assistant", "tool_calls": [{"index": 0, **call}]}]
    base = {"id": name("chatcmpl-"), "created": int(time.time()), "model": body.get("model")}
    if not stream:
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return to.json({**base, "object": "chat.completion", "usage": usage, "choices": [choice]})
    send = to.events()
    base["object"] = "chat.completion.chunk"
    for delta, end in [*((delta, None) for delta in deltas), ({}, reason)]:
        send({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": end}]})
    send({**base, "choices": [], "usage": usage})
    send("[DONE]")


def gemini(to, body, step, stream):
    if (body.get("generationConfig") or {}).get("responseMimeType") == "application/json":
        # Questions of the agent's own: who speaks next, and which model to take.
        routing = {"reasoning": "scripted", "next_speaker": "user", "model_choice": "flash", "complexity_reasoning": "x",
                   "complexity_score": 1, "confidence": 0}
        part = {"text": json.dumps(routing)}
    elif step[0] == "say":
        part = {"text": step[1]}
    else:
        part = {"functionCall": {"id": name("call-"), "name": step[1], "args": step[2]}}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    chunk = {"candidates": [candidate], "modelVersion": "scripted", "responseId": name("r"),
             "usageMetadata": {"promptTokenCount": 50, "candidatesTokenCount": 10, "totalTokenCount": 60}}
    if stream:
        to.events()(chunk)
    else:
        to.json(chunk)
