"""Anthropic's own client, and LangChain's of its API."""

import asyncio
import secrets
import time

import anthropic
from anthropic import Anthropic, AsyncAnthropic
from langchain_anthropic import ChatAnthropic
from langchain_anthropic.chat_models import AnthropicModelNotFoundError, AnthropicTimeoutError
from langchain_core.tools import tool
from pydantic import BaseModel

from checks import (
    BASE_URL,
    CUT,
    KEY,
    LIMITED_KEY,
    MANAGEMENT_KEY,
    MODEL,
    POOR_KEY,
    SILENT,
    TIMED_OUT,
    check,
    raised,
    recovering,
    run,
)

client = Anthropic(base_url=BASE_URL, api_key=KEY, max_retries=0)
QUESTION = "How are you?"
MESSAGES = [{"role": "user", "content": QUESTION}]
# One answered by the sandbox, one by OpenAI's wire.
MODELS = ("sandbox/chat", MODEL)
WEATHER = {
    "name": "get_weather",
    "description": "The weather of a city",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}


class Person(BaseModel):
    """A person"""

    name: str
    age: int


def ask(of: Anthropic = client, **fields):
    settings = {"model": MODEL, "max_tokens": 1_000, "messages": MESSAGES}
    return of.messages.create(**{**settings, **fields})


@check("anthropic", "models: list through pages, and retrieve")
def models():
    listed = list(client.models.list(limit=7))
    ids = [model.id for model in listed]
    assert MODEL in ids and len(ids) == len(set(ids)) > 7
    assert all(model.type == "model" and model.display_name for model in listed)
    one = client.models.retrieve(MODEL)
    assert one.max_input_tokens == 128_000 and one._request_id.startswith("req_")
    raised(anthropic.NotFoundError, lambda: client.models.retrieve("openai/none"))


@check("anthropic", "messages: answer, usage, request id, with either header for the key")
def messages():
    for model in MODELS:
        answer = ask(model=model, system="Be brief.")
        assert answer.content[0].text and answer.stop_reason == "end_turn"
        assert answer.usage.output_tokens > 0 and answer._request_id.startswith("req_")
    bearer = Anthropic(base_url=BASE_URL, auth_token=KEY, max_retries=0)
    assert ask(bearer).content[0].text


@check("anthropic", "messages: streamed by the stream helper, and by the asynchronous client")
def streamed():
    for model in MODELS:
        with client.messages.stream(model=model, max_tokens=1_000, messages=MESSAGES) as stream:
            pieces = list(stream.text_stream)
            whole = stream.get_final_message()
        assert len(pieces) > 1 and whole.content[0].text == "".join(pieces)
        assert whole.usage.output_tokens > 0

    async def one() -> str:
        async with AsyncAnthropic(base_url=BASE_URL, api_key=KEY, max_retries=0) as of:
            async with of.messages.stream(
                model=MODEL, max_tokens=1_000, messages=MESSAGES
            ) as stream:
                return await stream.get_final_text()

    assert asyncio.run(one())


@check("anthropic", "tools: calls whole and streamed, results sent back")
def tools():
    fields = {"tools": [WEATHER], "tool_choice": {"type": "any"}}
    for model in MODELS:
        asked = ask(model=model, **fields)
        [call] = [block for block in asked.content if block.type == "tool_use"]
        assert asked.stop_reason == "tool_use" and isinstance(call.input["city"], str)
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "rain"}
        turns = [{"role": "assistant", "content": asked.content}]
        turns += [{"role": "user", "content": [result]}]
        answer = ask(model=model, messages=[*MESSAGES, *turns], tools=[WEATHER])
        assert answer.content[0].text
        with client.messages.stream(
            model=model, max_tokens=1_000, messages=MESSAGES, **fields
        ) as stream:
            [block] = [one for one in stream.get_final_message().content if one.type == "tool_use"]
        assert isinstance(block.input["city"], str)


@check("anthropic", "tools: the tool runner goes on without a message thread")
def tool_runner():
    cities: list[str] = []

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """The weather of a city"""
        cities.append(city)
        return "rain"

    runner = client.beta.messages.tool_runner(
        model="sandbox/chat", max_tokens=1_000, messages=MESSAGES, tools=[get_weather]
    )
    answer = runner.until_done()
    assert answer.stop_reason == "end_turn" and answer.content[0].text
    assert len(cities) == 1, cities


@check("anthropic", "messages: count_tokens")
def count_tokens():
    counted = client.messages.count_tokens(model="sandbox/chat", messages=MESSAGES)
    assert 0 < counted.input_tokens < 100


@check("anthropic", "errors: each status in its own class, with Anthropic's envelope")
def errors():
    def of(key: str) -> Anthropic:
        return client.with_options(api_key=key)

    ask(of(LIMITED_KEY))
    once = {"Idempotency-Key": secrets.token_hex(8)}
    ask(model="sandbox/chat", extra_headers=once)
    again = {"model": "sandbox/chat", "max_tokens": 11, "extra_headers": once}
    long = [{"role": "user", "content": "a" * (33 * 1024 * 1024)}]
    for kind, status, name, call in (
        (anthropic.BadRequestError, 400, "invalid_request_error", lambda: ask(messages=[])),
        (anthropic.AuthenticationError, 401, "authentication_error", lambda: ask(of("sk-wrong"))),
        (anthropic.PaymentRequiredError, 402, "billing_error", lambda: ask(of(POOR_KEY))),
        (anthropic.PermissionDeniedError, 403, "permission_error", lambda: ask(of(MANAGEMENT_KEY))),
        (anthropic.NotFoundError, 404, "not_found_error", lambda: ask(model="openai/none")),
        (anthropic.RequestTimeoutError, 408, "timeout_error", lambda: ask(model=TIMED_OUT)),
        (anthropic.ConflictError, 409, "invalid_request_error", lambda: ask(**again)),
        (anthropic.ContentTooLargeError, 413, "request_too_large", lambda: ask(messages=long)),
        (anthropic.RateLimitError, 429, "rate_limit_error", lambda: ask(of(LIMITED_KEY))),
        (anthropic.InternalServerError, 502, "api_error", lambda: ask(model="sandbox/error-500")),
        (anthropic.ServiceUnavailableError, 503, "overloaded_error", lambda: ask(model="sandbox/overloaded")),
    ):
        error = raised(kind, call)
        assert error.status_code == status, error
        assert (error.body["type"], error.body["error"]["type"]) == ("error", name)
        assert error.request_id == error.body["request_id"]


@check("anthropic", "errors: a stream that breaks off raises after the pieces that came")
def broken_stream():
    pieces: list[str] = []

    def read():
        with client.messages.stream(model=CUT, max_tokens=500, messages=MESSAGES) as stream:
            pieces.extend(stream.text_stream)

    raised(anthropic.APIStatusError, read)


@check("anthropic", "retries and timeouts")
def retries():
    answer = ask(client.with_options(max_retries=2), model=recovering("anthropic"))
    assert answer.content[0].text == "recovered"
    began = time.monotonic()
    raised(anthropic.APITimeoutError, lambda: ask(client.with_options(timeout=0.5), model=SILENT))
    assert time.monotonic() - began < 20


def langchain(**fields) -> ChatAnthropic:
    settings = {"model": MODEL, "base_url": BASE_URL, "api_key": KEY, "max_retries": 0}
    return ChatAnthropic(**{**settings, "max_tokens": 1_000, **fields})


@check("langchain-anthropic", "chat: answer and usage, whole and streamed")
def langchain_chat():
    answer = langchain().invoke(QUESTION)
    assert answer.content and answer.usage_metadata["total_tokens"] > 0
    chunks = list(langchain().stream(QUESTION))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert len(chunks) > 1 and whole.content and whole.usage_metadata["output_tokens"] > 0


@check("langchain-anthropic", "tools: bound, called, results sent back")
def langchain_tools():
    @tool
    def get_weather(city: str) -> str:
        """The weather of a city"""
        return f"rain in {city}"

    asked = langchain().bind_tools([get_weather], tool_choice="any").invoke(QUESTION)
    [call] = asked.tool_calls
    result = get_weather.invoke(call)
    turns = [("user", QUESTION), asked, result]
    assert langchain().bind_tools([get_weather]).invoke(turns).content


@check("langchain-anthropic", "structured output, by a tool")
def langchain_structured():
    assert isinstance(langchain().with_structured_output(Person).invoke(QUESTION), Person)


@check("langchain-anthropic", "errors, retries and timeouts")
def langchain_errors():
    raised(AnthropicModelNotFoundError, lambda: langchain(model="openai/none").invoke(QUESTION))
    model = recovering("langchain-anthropic")
    assert langchain(model=model, max_retries=2).invoke(QUESTION).content == "recovered"
    silent = langchain(model=SILENT, default_request_timeout=0.5)
    raised(AnthropicTimeoutError, lambda: silent.invoke(QUESTION))


run()
