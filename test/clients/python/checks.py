"""Runs checks of clients and prints what became of each as a line of JSON."""

import json
import os
import traceback
from collections.abc import Callable

BASE_URL = os.environ["GATEWAY_URL"]
API_URL = f"{BASE_URL}/v1"
KEY = os.environ["SECRET_KEY"]
POOR_KEY = os.environ["GATEWAY_POOR_KEY"]
LIMITED_KEY = os.environ["GATEWAY_LIMITED_KEY"]
MANAGEMENT_KEY = os.environ["GATEWAY_MANAGEMENT_KEY"]

# Replayed by the upstream: answers tools and response formats as OpenAI does.
MODEL = "openai/gpt-4o-mini"
# The upstream never answers.
SILENT = "test/silent"
# The upstream answers 408.
TIMED_OUT = "test/timed-out"
# The upstream breaks its stream off.
CUT = "test/cut"
# Speaks, and breaks off while it does.
SPEAKING = "test/speaking"
SPEAKING_CUT = "test/speaking-cut"
LISTENING = "test/listening"


def recovering(client: str) -> str:
    """A model whose upstream fails as often as the gateway tries, then answers "recovered"; once for each client."""
    return f"test/recovering-{client}"


_checks: list[tuple[str, str, Callable[[], None]]] = []


def check(client: str, tried: str):
    """Registers a function that raises where the client does not get what it expects."""

    def register(function: Callable[[], None]):
        _checks.append((client, tried, function))
        return function

    return register


def raised(kind: type[BaseException], call: Callable[[], object]) -> BaseException:
    """What the call raises, which must be of that very class."""
    try:
        call()
    except kind as error:
        assert type(error) is kind, f"{type(error).__name__} instead of {kind.__name__}: {error}"
        return error
    raise AssertionError(f"no {kind.__name__} was raised")


def run() -> None:
    for client, tried, function in _checks:
        outcome = {"client": client, "tried": tried, "error": None}
        try:
            function()
        except Exception:
            outcome["error"] = traceback.format_exc()
        print(json.dumps(outcome), flush=True)
