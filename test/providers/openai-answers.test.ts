import { afterAll, beforeEach, expect, test } from "bun:test";
import { OpenAiCompletion } from "../../src/providers/openai/chat/chat-answers.ts";
import { MAX_COMPLETION_BYTES } from "../../src/providers/transport/bounded-body.ts";
import { listRecordings, loadRecording } from "../upstream/recordings.ts";
import { startUpstream } from "../upstream/server.ts";
import {
  adapter,
  allBytes,
  bytesIn,
  callOf,
  eventsOf,
  failureOf,
  serve,
  textOf,
} from "./openai-adapter.ts";

const upstream = await startUpstream();
const provider = adapter(upstream.baseUrl);
afterAll(() => upstream.stop());
beforeEach(() => upstream.reset());

test.each(listRecordings())("the recorded answer %s comes through unchanged", async (name) => {
  const recording = loadRecording(name);
  const answer = await provider.chat(callOf(`replay:${name}`, { stream: recording.stream }));
  if (answer instanceof OpenAiCompletion) {
    expect(answer.completion).toEqual(recording.json);
  } else expect(await allBytes(answer)).toEqual(Buffer.from(recording.sse!));
});

test("cancelling a stream's body aborts the upstream call", async () => {
  upstream.behave("m", { do: "endless" });
  const answer = await provider.chat(callOf("m", { stream: true }));
  const reader = bytesIn(answer);
  await reader.read();
  await reader.cancel();
  await upstream.until(([one]) => one?.aborted === true);
});

test.each(["cold", "warm"])(
  "aborting the signal ends a %s endpoint's stream with an error and the upstream call",
  async (state) => {
    const fresh = adapter(upstream.baseUrl);
    if (state === "warm") await fresh.chat(callOf("m"));
    upstream.behave("m", { do: "endless" });
    const controller = new AbortController();
    const answer = await fresh.chat(callOf("m", { stream: true, signal: controller.signal }));
    const reader = bytesIn(answer);
    await reader.read();
    controller.abort();
    const readToEnd = async () => {
      while (!(await reader.read()).done);
    };
    await expect(readToEnd()).rejects.toThrow();
    await upstream.until((list) => list.at(-1)?.aborted === true);
  },
);

test("an abort before the answer is a failure of kind aborted", async () => {
  upstream.behave("m", { do: "stall" });
  const controller = new AbortController();
  const failure = failureOf(provider.chat(callOf("m", { signal: controller.signal })));
  await upstream.until(([one]) => one?.behaviour === "stall");
  controller.abort(new Error("gone"));
  expect((await failure).kind).toBe("aborted");
  await upstream.until(([one]) => one?.aborted === true);
  const late = failureOf(provider.chat(callOf("m", { signal: controller.signal })));
  expect((await late).kind).toBe("aborted");
});

test("a whole completion in answer to a stream request becomes a stream of the same content", async () => {
  const usage = { prompt_tokens: 3, completion_tokens: 4, total_tokens: 7 };
  const toolCalls = ["a", "b"].map((name) => ({
    id: `call_${name}`,
    type: "function",
    function: { name, arguments: "{}" },
  }));
  await using server = serve(() =>
    Response.json(
      {
        id: "c1",
        object: "chat.completion",
        created: 5,
        model: "m",
        choices: [
          { index: 0, message: { role: "assistant", content: "Hi" }, finish_reason: "stop" },
          { message: { role: "assistant", tool_calls: toolCalls }, finish_reason: "tool_calls" },
        ],
        usage,
      },
      { headers: { "content-type": "Application/JSON; charset=utf-8" } },
    ),
  );
  const events = eventsOf(
    await textOf(await adapter(server.baseUrl).chat(callOf("m", { stream: true }))),
  );
  const head = { id: "c1", object: "chat.completion.chunk", created: 5, model: "m" };
  expect(events).toEqual([
    {
      ...head,
      choices: [
        { index: 0, delta: { role: "assistant", content: "Hi" }, finish_reason: "stop" },
        {
          index: 1,
          delta: {
            role: "assistant",
            tool_calls: toolCalls.map((call, index) => ({ index, ...call })),
          },
          finish_reason: "tool_calls",
        },
      ],
    },
    { ...head, choices: [], usage },
  ] as never);
});

test.each([
  "text/event-stream",
  "Text/Event-Stream; charset=UTF-8",
  " text/event-stream;charset=utf-8",
  // What servers of Go and of aiohttp name where nobody did.
  "text/plain; charset=utf-8",
  "application/octet-stream",
  "text/event-stream, text/event-stream",
  "text/event-stream; charset=utf-8, text/event-stream",
])("content type %p is a stream", async (type) => {
  await using server = serve(
    () => new Response("data: [DONE]\n\n", { headers: { "content-type": type } }),
  );
  const answer = await adapter(server.baseUrl).chat(callOf("m", { stream: true }));
  expect(await textOf(answer)).toBe("data: [DONE]\n\n");
});

test("a stream without a content type is passed on", async () => {
  const server = adapter("http://h.test/v1", {
    answer: () => new Response(new Blob(["data: [DONE]\n\n"]).stream()),
  });
  expect(await textOf(await server.chat(callOf("m", { stream: true })))).toBe("data: [DONE]\n\n");
});

test.each([
  ["html", { stream: false }],
  ["html", { stream: true }],
  ["empty-body", { stream: false }],
  ["truncated-json", { stream: false }],
  ["garbage-chunk", { stream: false }],
  ["cut", { stream: false }],
  ["refuse", { stream: false }],
  ["refuse", { stream: true }],
  ["redirect", { stream: false }],
  ["redirect", { stream: true }],
] as const)("%s with %p is a failure of kind unavailable", async (behaviour, { stream }) => {
  upstream.behave("m", { do: behaviour });
  const failure = await failureOf(provider.chat(callOf("m", { stream })));
  expect(failure.kind).toBe("unavailable");
  expect(failure.message).not.toContain("<");
});

test("a redirect is not followed", async () => {
  const seen: string[] = [];
  await using server = serve((request) => {
    seen.push(new URL(request.url).pathname);
    return Response.redirect("/elsewhere", 307);
  });
  const failure = await failureOf(adapter(server.baseUrl).chat(callOf("m")));
  expect([failure.kind, failure.status, seen]).toEqual([
    "unavailable",
    307,
    ["/v1/chat/completions"],
  ]);
});

test.each(["null", "[]", "5", '"text"', "[1"])(
  "the body %p is no completion, streamed or not",
  async (body) => {
    await using server = serve(
      () => new Response(body, { headers: { "content-type": "application/json" } }),
    );
    for (const stream of [false, true]) {
      const failure = await failureOf(adapter(server.baseUrl).chat(callOf("m", { stream })));
      expect(failure.kind).toBe("unavailable");
    }
  },
);

test("a body that is nested too deeply to be serialised again is refused", async () => {
  const body = `{"choices":[{"a":${"[".repeat(100_000)}${"]".repeat(100_000)}}]}`;
  await using server = serve(() => new Response(body));
  expect((await failureOf(adapter(server.baseUrl).chat(callOf("m")))).kind).toBe("unavailable");
});

test.each(["with a length", "without a length", "compressed"])(
  "a completion of more than MAX_COMPLETION_BYTES %s is not read to its end",
  async (how) => {
    const block = new Uint8Array(1024 * 1024).fill(0x20);
    let sent = 0;
    const pieces = () =>
      new ReadableStream<Uint8Array>({
        pull(controller) {
          sent += block.length;
          if (sent > 8 * MAX_COMPLETION_BYTES) controller.close();
          else controller.enqueue(block);
        },
      });
    await using server = serve(() => {
      if (how === "with a length") return new Response(new Uint8Array(MAX_COMPLETION_BYTES + 1));
      if (how === "without a length") return new Response(pieces());
      const bomb = Bun.gzipSync(new Uint8Array(4 * MAX_COMPLETION_BYTES));
      return new Response(bomb, { headers: { "content-encoding": "gzip" } });
    });
    const failure = await failureOf(adapter(server.baseUrl).chat(callOf("m")));
    expect(failure.kind).toBe("unavailable");
    expect(failure.message).toContain("too many bytes");
    expect(sent).toBeLessThan(4 * MAX_COMPLETION_BYTES);
  },
);

test("a completion in pieces that cut characters is read whole", async () => {
  const bytes = new TextEncoder().encode(
    JSON.stringify({ choices: [{ text: "Grüße, 世界 👋🏽" }] }),
  );
  await using server = serve(() => {
    let at = 0;
    return new Response(
      new ReadableStream<Uint8Array>({
        async pull(controller) {
          if (at >= bytes.length) return controller.close();
          controller.enqueue(bytes.subarray(at, ++at));
        },
      }),
    );
  });
  expect(await adapter(server.baseUrl).chat(callOf("m"))).toMatchObject({
    kind: "whole",
    completion: { choices: [{ text: "Grüße, 世界 👋🏽" }] },
  });
});
