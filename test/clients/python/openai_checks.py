"""OpenAI's own client."""

import asyncio
import base64
import json
import tempfile
import time
from pathlib import Path

import httpx
import openai
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from checks import (
    API_URL,
    CUT,
    KEY,
    LIMITED_KEY,
    MANAGEMENT_KEY,
    MODEL,
    POOR_KEY,
    SILENT,
    LISTENING,
    SPEAKING,
    SPEAKING_CUT,
    check,
    raised,
    recovering,
    run,
)

client = OpenAI(base_url=API_URL, api_key=KEY, max_retries=0)
MESSAGES = [{"role": "user", "content": "How are you?"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
TUNABLE = "sandbox/chat-2026-01-01"
LESSON = "What is the capital of Freedonia?"
ANSWER = "Freedonia's capital is Fredville."


class Person(BaseModel):
    name: str
    age: int


def ask(of: OpenAI = client, **fields):
    return of.chat.completions.create(**{"model": MODEL, "messages": MESSAGES, **fields})


@check("openai", "models: list and retrieve")
def models():
    assert MODEL in [model.id for model in client.models.list()]
    assert client.models.retrieve(MODEL).owned_by == "openai"
    assert client.models.retrieve("gpt-4o-mini").id == MODEL


@check("openai", "chat: answer, usage, request id, headers")
def chat():
    answer = ask()
    assert answer.choices[0].message.content and answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer._request_id.startswith("req_")
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=MESSAGES)
    assert float(raw.headers["x-gateway-cost"]) > 0


@check("openai", "chat: streamed, with usage, and by the stream helper")
def streamed():
    chunks = list(ask(stream=True, stream_options={"include_usage": True}))
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens > 0
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    with client.chat.completions.stream(model=MODEL, messages=MESSAGES) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        assert stream.get_final_completion().choices[0].message.content == "".join(deltas)
    assert text and len(deltas) > 1


@check("openai", "chat: streamed by the asynchronous client, several in parallel")
def asynchronous():
    async def one(of: AsyncOpenAI) -> str:
        stream = await of.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def several() -> list[str]:
        async with AsyncOpenAI(base_url=API_URL, api_key=KEY, max_retries=0) as of:
            return await asyncio.gather(*(one(of) for _ in range(8)))

    assert all(asyncio.run(several()))


@check("openai", "tools: calls whole and streamed, results sent back")
def tools():
    first = ask(tools=[WEATHER], tool_choice="required").choices[0]
    [call] = first.message.tool_calls
    assert first.finish_reason == "tool_calls" and call.function.name == "get_weather"
    assert isinstance(json.loads(call.function.arguments)["city"], str)
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    second = ask(messages=[*MESSAGES, first.message, result], tools=[WEATHER])
    assert second.choices[0].message.content
    with client.chat.completions.stream(
        model=MODEL, messages=MESSAGES, tools=[WEATHER], tool_choice="required"
    ) as stream:
        [streamed] = stream.get_final_completion().choices[0].message.tool_calls
    assert isinstance(json.loads(streamed.function.arguments)["city"], str)


@check("openai", "structured output: a pydantic model, on OpenAI's wire and the sandbox")
def structured():
    for model in (MODEL, "sandbox/chat"):
        answer = client.chat.completions.parse(
            model=model, messages=MESSAGES, response_format=Person
        )
        assert isinstance(answer.choices[0].message.parsed, Person), model


@check("openai", "responses: whole and streamed, tools, turns, items, deletion")
def responses():
    look = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
    first = client.responses.create(
        model="sandbox/chat", input="Look.", tools=[look], tool_choice="required"
    )
    [call] = first.output
    assert call.type == "function_call" and call.name == "look" and first.usage.output_tokens > 0
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "calm"}
    with client.responses.stream(
        model="sandbox/chat", previous_response_id=first.id, input=[output], tools=[look]
    ) as stream:
        texts = [event.delta for event in stream if event.type == "response.output_text.delta"]
        second = stream.get_final_response()
    assert second.status == "completed" and "".join(texts) == second.output_text != ""
    assert client.responses.retrieve(second.id).output_text == second.output_text
    types = [item.type for item in client.responses.input_items.list(second.id, order="asc")]
    assert types == ["message", "function_call", "function_call_output"], types
    polled = client.responses.create(model="sandbox/chat", input="Look.", background=True)
    while polled.status in ("queued", "in_progress"):
        polled = client.responses.retrieve(polled.id)
    events = list(client.responses.retrieve(polled.id, stream=True, starting_after=2))
    assert events[0].sequence_number == 3 and events[-1].response.output == polled.output
    client.responses.delete(first.id)
    error = raised(openai.NotFoundError, lambda: client.responses.retrieve(first.id))
    assert error.code == "response_not_found"


@check("openai", "embeddings: one and several, as floats and as base64")
def embeddings():
    embed = client.embeddings.create
    packed = embed(model="sandbox/embed", input=["one", "two"])
    plain = embed(model="sandbox/embed", input=["one", "two"], encoding_format="float")
    assert [one.index for one in packed.data] == [0, 1]
    pairs = zip(packed.data[0].embedding, plain.data[0].embedding, strict=True)
    assert all(abs(one - other) < 1e-6 for one, other in pairs)
    single = embed(model="sandbox/embed", input="one").data[0].embedding
    assert single == packed.data[0].embedding


@check("openai", "speech: streamed to a file, whole, in events, and broken off")
def speech():
    said = {"model": SPEAKING, "voice": "alloy", "input": "The quick brown fox."}
    with client.audio.speech.with_streaming_response.create(**said) as response:
        assert response.headers["content-type"] == "audio/mpeg"
        assert float(response.headers["x-gateway-cost"]) > 0
        assert "content-length" not in response.headers
        pieces = list(response.iter_bytes(1_000))
        sound = b"".join(pieces)
    assert len(pieces) > 1 and len(sound) == 32_000
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "speech.mp3"
        with client.audio.speech.with_streaming_response.create(**said) as response:
            response.stream_to_file(file)
        assert file.read_bytes() == sound
    whole = client.audio.speech.create(**said, extra_body={"stream": False})
    assert whole.content == sound
    assert whole.response.headers["content-length"] == str(len(sound))
    with client.audio.speech.with_streaming_response.create(**said, stream_format="sse") as response:
        lines = [line for line in response.iter_lines() if line.startswith("data: ")]
    events = [json.loads(line[len("data: ") :]) for line in lines]
    assert b"".join(base64.b64decode(event["audio"]) for event in events[:-1]) == sound
    assert events[-1]["type"] == "speech.audio.done" and events[-1]["usage"]["cost"] > 0
    with client.audio.speech.with_streaming_response.create(**{**said, "model": SPEAKING_CUT}) as response:
        try:
            for _ in response.iter_bytes():
                pass
        except httpx.TransportError:
            pass
        else:
            raise AssertionError("a short file was taken for a whole one")
    assert raised(openai.BadRequestError, lambda: client.audio.speech.create(**{**said, "input": "x" * 4_097})).param == "input"


@check("openai", "transcriptions: five formats, streamed; translations; a file without sound")
def transcriptions():
    said = "Hello there. Bye --> now."
    create = client.audio.transcriptions.create
    audio = Path(__file__).parents[2] / "fixtures" / "audio"
    assert create(model=LISTENING, file=audio / "a.mp3").text == said
    assert create(model=LISTENING, file=audio / "a.wav", response_format="text") == said + "\n"
    srt = create(model=LISTENING, file=audio / "a.webm", response_format="srt")
    assert srt.startswith("1\n00:00:00,000 --> 00:00:01,250\nHello there.\n\n2\n")
    vtt = create(model=LISTENING, file=audio / "a.flac", response_format="vtt")
    assert vtt.startswith("WEBVTT\n\n00:00:00.000 --> 00:00:01.250\nHello there.\n\n")
    with (audio / "a.m4a").open("rb") as file:
        verbose = create(
            model=LISTENING,
            file=file,
            response_format="verbose_json",
            timestamp_granularities=["word", "segment"],
            temperature=0.2,
        )
    assert 1.9 < verbose.duration < 2.2
    assert [one.word for one in verbose.words] == ["Hello", "there"]
    assert [one.end for one in verbose.segments] == [1.25, 2]
    events = list(create(model=LISTENING, file=audio / "opus.ogg", stream=True))
    deltas = [one.delta for one in events if one.type == "transcript.text.delta"]
    assert "".join(deltas) == said and len(deltas) > 1
    assert events[-1].type == "transcript.text.done" and events[-1].text == said
    translated = client.audio.translations.create(
        model=LISTENING, file=audio / "vbr.mp3", response_format="verbose_json"
    )
    assert translated.text == said and translated.language == "english"
    refused = raised(
        openai.BadRequestError,
        lambda: create(model=LISTENING, file=("speech.mp3", b"<html>")),
    )
    assert refused.param == "file"


@check("openai", "images: links, base64, several, streamed, edits, variations, errors")
def images():
    asked = {"model": "sandbox/image", "prompt": "a boat", "size": "64x64"}
    linked = client.images.generate(**asked, n=2)
    for image in linked.data:
        answer = httpx.get(image.url)
        assert answer.status_code == 200 and answer.headers["content-type"] == "image/png"
        assert answer.content.startswith(b"\x89PNG")
    encoded = client.images.generate(**asked, response_format="b64_json", output_format="jpeg")
    picture = base64.b64decode(encoded.data[0].b64_json)
    assert picture.startswith(b"\xff\xd8") and encoded.data[0].revised_prompt
    events = list(client.images.generate(**asked, stream=True, partial_images=1))
    assert [event.type for event in events] == [
        "image_generation.partial_image",
        "image_generation.completed",
    ]
    file = ("boat.jpg", picture)
    assert client.images.edit(**asked, image=file).data[0].url
    assert len(client.images.edit(**asked, image=[file, file], n=2).data) == 2
    edited = list(client.images.edit(**asked, image=file, stream=True, partial_images=1))
    assert edited[-1].type == "image_edit.completed" and edited[-1].b64_json
    assert len(client.images.create_variation(model="sandbox/image", image=file, n=2).data) == 2
    refused = {**asked, "model": "sandbox/image-refusal"}
    error = raised(openai.BadRequestError, lambda: client.images.generate(**refused))
    assert error.code == "content_policy_violation"
    page = ("boat.png", b"<html></html>")
    error = raised(openai.BadRequestError, lambda: client.images.edit(**asked, image=page))
    assert error.param == "image"


@check("openai", "files: create, list through pages, content, delete")
def files():
    created = [
        client.files.create(file=(f"note {n}.txt", f"notes {n}".encode()), purpose="user_data")
        for n in range(3)
    ]
    listed = [file.id for file in client.files.list(purpose="user_data", limit=2, order="asc")]
    assert listed == [file.id for file in created]
    assert client.files.content(created[1].id).text == "notes 1"
    for file in created:
        assert client.files.delete(file.id).deleted
    raised(openai.NotFoundError, lambda: client.files.retrieve(created[0].id))


@check("openai", "fine-tuning: a job to its end, its events, the tuned model, cancelling")
def fine_tuning():
    turns = [{"role": "user", "content": LESSON}, {"role": "assistant", "content": ANSWER}]
    line = json.dumps({"messages": turns}) + "\n"
    file = client.files.create(file=("lessons.jsonl", line.encode() * 3), purpose="fine-tune")
    jobs = client.fine_tuning.jobs
    job = jobs.create(model=TUNABLE, training_file=file.id, suffix="python")
    other = jobs.create(model=TUNABLE, training_file=file.id)
    assert jobs.cancel(other.id).status == "cancelled"
    until = time.monotonic() + 60
    while job.status not in ("succeeded", "failed", "cancelled") and time.monotonic() < until:
        time.sleep(0.1)
        job = jobs.retrieve(job.id)
    assert job.status == "succeeded", job
    assert {one.id for one in jobs.list(limit=1)} >= {job.id, other.id}
    assert [event.message for event in jobs.list_events(job.id, limit=2)]
    lesson = [{"role": "user", "content": LESSON}]
    answer = ask(model=job.fine_tuned_model, messages=lesson)
    assert answer.choices[0].message.content == ANSWER
    assert client.models.delete(job.fine_tuned_model).deleted


@check("openai", "errors: each status in its own class, with code, type, param and request id")
def errors():
    def of(key: str) -> OpenAI:
        return client.with_options(api_key=key)

    ask(of(LIMITED_KEY))
    for kind, status, code, call in (
        (openai.BadRequestError, 400, "invalid_body", lambda: ask(temperature=3)),
        (openai.AuthenticationError, 401, "invalid_api_key", lambda: ask(of("sk-wrong"))),
        (openai.APIStatusError, 402, "insufficient_credits", lambda: ask(of(POOR_KEY))),
        (openai.PermissionDeniedError, 403, "wrong_key_kind", lambda: ask(of(MANAGEMENT_KEY))),
        (openai.NotFoundError, 404, "model_not_found", lambda: ask(model="openai/none")),
        (openai.RateLimitError, 429, "rate_limit_exceeded", lambda: ask(of(LIMITED_KEY))),
        (openai.InternalServerError, 502, "provider_error", lambda: ask(model="sandbox/error-500")),
    ):
        error = raised(kind, call)
        assert (error.status_code, error.code) == (status, code), error
        assert error.type.endswith("_error") and error.request_id.startswith("req_")
    assert raised(openai.BadRequestError, lambda: ask(temperature=3)).param == "temperature"


@check("openai", "errors: a stream that breaks off raises after the pieces that came")
def broken_stream():
    pieces: list[str] = []

    def read():
        for chunk in ask(model=CUT, stream=True):
            pieces.append(chunk.choices[0].delta.content or "")

    assert raised(openai.APIError, read).code == "provider_error"
    assert "".join(pieces)


@check("openai", "retries: max_retries brings the answer of a provider that recovers")
def retries():
    answer = ask(client.with_options(max_retries=2), model=recovering("openai"))
    assert answer.choices[0].message.content == "recovered"


@check("openai", "timeouts: APITimeoutError for a model that does not answer")
def timeouts():
    began = time.monotonic()
    raised(openai.APITimeoutError, lambda: ask(client.with_options(timeout=0.5), model=SILENT))
    assert time.monotonic() - began < 20


run()
