"""Anthropic's own client before replayed providers and the sandbox, with bills equal to chat's."""

import json
import os

import httpx
from anthropic import Anthropic

from checks import API_URL, BASE_URL, KEY, MANAGEMENT_KEY, check, run

REPLAYS = json.loads(os.environ["GATEWAY_REPLAYS"])
COUNTED_TOKENS = int(os.environ["GATEWAY_COUNTED_TOKENS"])

client = Anthropic(base_url=BASE_URL, api_key=KEY, max_retries=0)
# Each of its own would read the certificates of all authorities once more.
plain = httpx.Client(timeout=30)
MESSAGES = [{"role": "user", "content": "hello"}]
WEATHER = {"name": "get_weather", "input_schema": {"type": "object", "properties": {}}}


def replays(wire: str) -> list[dict]:
    return [one for one in REPLAYS if one["wire"] == wire]


def message_of(model: str, stream: bool, **fields):
    """The message, and the id of its request."""
    asked = {"model": model, "max_tokens": 4_000, "messages": MESSAGES, **fields}
    if not stream:
        message = client.messages.create(**asked)
        return message, message._request_id
    with client.messages.stream(**asked) as events:
        pieces = list(events.text_stream)
        message = events.get_final_message()
        text = "".join(block.text for block in message.content if block.type == "text")
        assert text == "".join(pieces)
        return message, events.response.headers["request-id"]


def chat_of(model: str, stream: bool) -> str:
    """The id of the same request by chat."""
    response = plain.post(
        f"{API_URL}/chat/completions",
        headers={"authorization": f"Bearer {KEY}"},
        json={"model": model, "max_tokens": 4_000, "messages": MESSAGES, "stream": stream},
    )
    assert response.status_code == 200, response.text
    return response.headers["x-request-id"]


def bill_of(request_id: str):
    """What it was charged, and for which tokens."""
    response = plain.get(
        f"{API_URL}/credits/transactions",
        headers={"authorization": f"Bearer {MANAGEMENT_KEY}"},
        params={"type": "usage", "limit": 200},
    )
    [bill] = [one for one in response.json()["data"] if one["request_id"] == request_id]
    assert bill["amount_usd"] < 0 and bill["completion_tokens"] > 0, bill
    return bill["amount_usd"], bill["prompt_tokens"], bill["completion_tokens"], bill["estimated"]


def expect_replay(replay: dict):
    message, request_id = message_of(replay["model"], replay["stream"])
    expected = replay["content"]
    assert [block.type for block in message.content] == [one["type"] for one in expected], message
    for block, of in zip(message.content, expected):
        for name, value in of.items():
            assert getattr(block, name) == value, (replay["model"], name)
    for name, count in (replay["usage"] or {}).items():
        assert getattr(message.usage, name) == count, (replay["model"], name)
    assert message.model == replay["model"]
    if replay["stopReason"] is not None:
        assert message.stop_reason == replay["stopReason"]
    chat_id = chat_of(replay["model"], replay["stream"])
    bills = bill_of(request_id), bill_of(chat_id)
    assert bills[0] == bills[1], (replay["model"], bills)


@check("anthropic", "sandbox: whole and streamed, billed as by chat")
def sandbox():
    for stream in (False, True):
        message, request_id = message_of("sandbox/chat", stream)
        assert "You said: hello" in message.content[0].text
        assert bill_of(request_id) == bill_of(chat_of("sandbox/chat", stream))


@check("anthropic", "recordings of OpenAI's wire: whole and streamed, billed as by chat")
def openai_recordings():
    assert {one["stream"] for one in replays("openai")} == {True, False}
    for replay in replays("openai"):
        expect_replay(replay)


@check("anthropic", "recordings of Anthropic: whole and streamed, billed as by chat")
def anthropic_recordings():
    assert {one["stream"] for one in replays("anthropic")} == {True, False}
    for replay in replays("anthropic"):
        expect_replay(replay)


@check("anthropic", "recordings of both wires: a tool's result sent back")
def tool_results():
    for wire in ("openai", "anthropic"):
        calling = [
            one
            for one in replays(wire)
            if one["stream"] and any(block["type"] == "tool_use" for block in one["content"])
        ]
        assert calling, wire
        for replay in calling:
            asked, _ = message_of(replay["model"], True, tools=[WEATHER])
            assert asked.stop_reason == "tool_use"
            calls = [block for block in asked.content if block.type == "tool_use"]
            assert len({call.id for call in calls}) == len(calls)
            results = [
                {"type": "tool_result", "tool_use_id": call.id, "content": "rain"} for call in calls
            ]
            turns = [
                *MESSAGES,
                {"role": "assistant", "content": asked.content},
                {"role": "user", "content": results},
            ]
            again, _ = message_of(replay["model"], True, messages=turns, tools=[WEATHER])
            assert [block.type for block in again.content] == [
                block.type for block in asked.content
            ]


@check("anthropic", "count_tokens: an estimate for OpenAI's wire, Anthropic's own count for its")
def count_tokens():
    counted = {
        wire: client.messages.count_tokens(model=replays(wire)[0]["model"], messages=MESSAGES)
        for wire in ("openai", "anthropic")
    }
    assert 0 < counted["openai"].input_tokens < 100
    assert counted["anthropic"].input_tokens == COUNTED_TOKENS


run()
