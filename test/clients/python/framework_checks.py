"""Frameworks that speak OpenAI's interface; in one process, since their imports take the longest."""

import instructor
import litellm
import openai
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from langchain_openai.chat_models.base import OpenAIModelNotFoundError, OpenAITimeoutError
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike
from openai import OpenAI
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from checks import (
    API_URL,
    KEY,
    LIMITED_KEY,
    MODEL,
    POOR_KEY,
    SILENT,
    check,
    raised,
    recovering,
    run,
)

QUESTION = "How are you?"


class Person(BaseModel):
    """A person"""

    name: str
    age: int


# --- LangChain


def langchain(**fields) -> ChatOpenAI:
    settings = {"model": MODEL, "base_url": API_URL, "api_key": KEY, "max_retries": 0}
    return ChatOpenAI(**{**settings, **fields})


@check("langchain-openai", "chat: answer and usage")
def langchain_chat():
    answer = langchain().invoke(QUESTION)
    assert answer.content and answer.usage_metadata["total_tokens"] > 0
    assert answer.response_metadata["model_name"] == MODEL


@check("langchain-openai", "chat: streamed, with usage")
def langchain_stream():
    chunks = list(langchain(stream_usage=True).stream(QUESTION))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert len(chunks) > 1 and whole.content and whole.usage_metadata["output_tokens"] > 0


@check("langchain-openai", "tools: bound, called, results sent back")
def langchain_tools():
    @tool
    def get_weather(city: str) -> str:
        """The weather of a city"""
        return f"rain in {city}"

    model = langchain().bind_tools([get_weather], tool_choice="required")
    asked = model.invoke(QUESTION)
    [call] = asked.tool_calls
    result = get_weather.invoke(call)
    assert result.content.startswith("rain in ")
    assert langchain().invoke([("user", QUESTION), asked, result]).content


@check("langchain-openai", "structured output: by JSON schema and by tool")
def langchain_structured():
    for method in ("json_schema", "function_calling"):
        model = langchain().with_structured_output(Person, method=method)
        assert isinstance(model.invoke(QUESTION), Person), method


@check("langchain-openai", "embeddings: documents and a query")
def langchain_embeddings():
    # Without the check of lengths, which loads a tokenizer from the network.
    model = OpenAIEmbeddings(
        model="sandbox/embed", base_url=API_URL, api_key=KEY, check_embedding_ctx_length=False
    )
    documents = model.embed_documents(["one", "two"])
    assert len(documents) == 2 and model.embed_query("one") == documents[0]


@check("langchain-openai", "errors, retries and timeouts")
def langchain_errors():
    error = raised(
        OpenAIModelNotFoundError, lambda: langchain(model="openai/none").invoke(QUESTION)
    )
    assert isinstance(error, openai.NotFoundError) and error.code == "model_not_found"
    assert langchain(model=recovering("langchain"), max_retries=2).invoke(QUESTION).content == "recovered"
    silent = langchain(model=SILENT, timeout=0.5)
    raised(OpenAITimeoutError, lambda: silent.invoke(QUESTION))


# --- LlamaIndex


def llama(**fields) -> OpenAILike:
    settings = {"model": MODEL, "api_base": API_URL, "api_key": KEY, "is_chat_model": True}
    settings |= {"is_function_calling_model": True, "context_window": 128_000, "max_retries": 0}
    return OpenAILike(**{**settings, **fields})


@check("llama-index", "chat: answer, completion, and streamed")
def llama_chat():
    messages = [ChatMessage(role="user", content=QUESTION)]
    assert llama().chat(messages).message.content
    assert llama().complete(QUESTION).text
    chunks = list(llama().stream_chat(messages))
    assert len(chunks) > 1 and chunks[-1].message.content == "".join(c.delta for c in chunks)


@check("llama-index", "tools: predict_and_call runs one")
def llama_tools():
    asked: list[str] = []

    def get_weather(city: str) -> str:
        """The weather of a city"""
        asked.append(city)
        return "rain"

    tools = [FunctionTool.from_defaults(fn=get_weather)]
    answer = llama(model="sandbox/chat").predict_and_call(tools, user_msg=QUESTION)
    assert len(asked) == 1 and answer.response == "rain"


@check("llama-index", "structured output: a pydantic model")
def llama_structured():
    answer = llama().as_structured_llm(Person).complete(QUESTION)
    assert isinstance(answer.raw, Person)


@check("llama-index", "embeddings")
def llama_embeddings():
    model = OpenAILikeEmbedding(model_name="sandbox/embed", api_base=API_URL, api_key=KEY)
    one, two = model.get_text_embedding_batch(["one", "two"])
    assert one != two and model.get_query_embedding("one") == one


@check("llama-index", "errors, retries and timeouts")
def llama_errors():
    raised(openai.NotFoundError, lambda: llama(model="openai/none").complete(QUESTION))
    assert llama(model=recovering("llama"), max_retries=2).complete(QUESTION).text == "recovered"
    raised(openai.APITimeoutError, lambda: llama(model=SILENT, timeout=0.5).complete(QUESTION))


# --- LiteLLM


def lite(**fields):
    settings = {"model": f"openai/{MODEL}", "api_base": API_URL, "api_key": KEY, "num_retries": 0}
    messages = [{"role": "user", "content": QUESTION}]
    return litellm.completion(**{**settings, "messages": messages, **fields})


@check("litellm", "chat: answer, usage, and streamed")
def lite_chat():
    answer = lite()
    assert answer.choices[0].message.content and answer.usage.total_tokens > 0
    chunks = list(lite(stream=True, stream_options={"include_usage": True}))
    whole = litellm.stream_chunk_builder(chunks)
    assert len(chunks) > 1 and whole.choices[0].message.content and whole.usage.total_tokens > 0


@check("litellm", "tools and structured output")
def lite_tools():
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    function = {"name": "get_weather", "parameters": {**parameters, "required": ["city"]}}
    answer = lite(tools=[{"type": "function", "function": function}], tool_choice="required")
    [call] = answer.choices[0].message.tool_calls
    assert call.function.name == "get_weather"
    answer = lite(response_format=Person)
    assert Person.model_validate_json(answer.choices[0].message.content)


@check("litellm", "embeddings")
def lite_embeddings():
    answer = litellm.embedding(
        model="openai/sandbox/embed", input=["one", "two"], api_base=API_URL, api_key=KEY
    )
    assert len(answer.data) == 2


@check("litellm", "errors in its own classes, retries and timeouts")
def lite_errors():
    lite(api_key=LIMITED_KEY)
    for kind, fields in (
        (litellm.BadRequestError, {"temperature": 3}),
        (litellm.AuthenticationError, {"api_key": "sk-wrong"}),
        (litellm.NotFoundError, {"model": "openai/openai/none"}),
        (litellm.RateLimitError, {"api_key": LIMITED_KEY}),
        (litellm.Timeout, {"model": f"openai/{SILENT}", "timeout": 0.5}),
    ):
        raised(kind, lambda fields=fields: lite(**fields))
    answer = lite(model=f"openai/{recovering('litellm')}", num_retries=2)
    assert answer.choices[0].message.content == "recovered"


# --- Instructor


@check("instructor", "structured output: by tools, by JSON schema, and streamed in parts")
def instructor_structured():
    plain = OpenAI(base_url=API_URL, api_key=KEY, max_retries=0)
    messages = [{"role": "user", "content": QUESTION}]
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        client = instructor.from_openai(plain, mode=mode)
        answer = client.create(model=MODEL, response_model=Person, messages=messages)
        assert isinstance(answer, Person), mode
    client = instructor.from_openai(plain)
    parts = list(client.create_partial(model=MODEL, response_model=Person, messages=messages))
    assert parts[-1].name is not None and parts[-1].age is not None


# --- Pydantic AI


def agent(model: str = MODEL, key: str = KEY, **fields) -> Agent:
    client = openai.AsyncOpenAI(base_url=API_URL, api_key=key, max_retries=0)
    provider = OpenAIProvider(openai_client=client)
    return Agent(OpenAIChatModel(model, provider=provider), **fields)


@check("pydantic-ai", "chat: answer and usage")
def pydantic_chat():
    answer = agent().run_sync(QUESTION)
    assert answer.output and answer.usage.output_tokens > 0


@check("pydantic-ai", "structured output, with a tool")
def pydantic_structured():
    answer = agent(model="sandbox/chat", output_type=Person).run_sync(QUESTION)
    assert isinstance(answer.output, Person)


@check("pydantic-ai", "errors carry the status and the gateway's body")
def pydantic_errors():
    error = raised(ModelHTTPError, lambda: agent(key=POOR_KEY).run_sync(QUESTION))
    assert error.status_code == 402 and error.body["code"] == "insufficient_credits"


run()
