import { describe, expect, test } from "bun:test";
import { detailsIn } from "../../src/inference/endpoints/responses/reasoning-content.ts";
import { echoOf } from "../../src/inference/endpoints/responses/response-json.ts";
import { ResponseRenderer } from "../../src/inference/endpoints/responses/response-renderer.ts";
import { outputRender } from "../../src/inference/endpoints/responses/whole-response.ts";
import { ByteBuffer } from "../../src/lib/byte-buffer.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { GatewayError } from "../../src/lib/errors.ts";
import { estimatedUsage } from "../../src/lib/usage.ts";
import type { ChatEvent, ReasoningDetail } from "../../src/providers/interface.ts";
import { OpenAiStream } from "../../src/providers/openai/chat/chat-answers.ts";
import { responseEvents } from "../support/open-responses.ts";

type Fields = Record<string, unknown>;

const NAME = "0".repeat(32);
const USAGE = { ...estimatedUsage(30, 9), cachedPromptTokens: 10, estimated: false };

interface Asked {
  readonly showsSummary?: boolean;
  readonly customTools?: readonly string[];
}

function rendererOf({ showsSummary = false, customTools = [] }: Asked, output: ByteBuffer) {
  const options = {
    name: NAME,
    showsSummary,
    customTools: new Set(customTools),
    namespaced: new Map(),
  };
  const answer = { model: "test/m", nowSeconds: 1, echo: echoOf({ input: "hello" }) };
  return new ResponseRenderer({ ...options, ...answer }, output);
}

/** What a client gets of these events, each a batch of its own. */
function rendered(events: readonly ChatEvent[], asked: Asked = {}): Fields[] {
  const output = new ByteBuffer();
  const renderer = rendererOf(asked, output);
  for (const event of events) renderer.push([event]);
  output.add(renderer.closing(renderer.whole(renderer.usage ?? USAGE, 0.5, 2)));
  return responseEvents(Buffer.from(output.take()).toString());
}

/** The items that the deltas of a stream amount to, each text by its events alone. */
function itemsOf(events: readonly Fields[]): Fields[] {
  return events
    .filter(({ type }) => type === "response.output_item.done")
    .map((e) => e.item) as never;
}

function textsOf(events: readonly Fields[], type: string): string {
  return events
    .filter((event) => event.type === type)
    .map(({ delta }) => delta)
    .join("");
}

const choice = 0;
const text = (said: string, rest: Fields = {}): ChatEvent =>
  ({ type: "text", choice, text: said, ...rest }) as ChatEvent;
const call = (index: number, rest: Fields): ChatEvent =>
  ({ type: "tool_call", choice, index, ...rest }) as ChatEvent;
const reasoning = (said: string, ...details: ReasoningDetail[]): ChatEvent => ({
  type: "reasoning",
  choice,
  text: said,
  ...(details.length > 0 && { details }),
});
const finish = (reason: "stop" | "tool_calls" | "length" | "content_filter"): ChatEvent => ({
  type: "finish",
  choice,
  reason,
});

describe("runs of the gateway's own tools", () => {
  const run = (number: number, state: string, item: Fields, isOver = false): ChatEvent =>
    ({ type: "tool_run", choice, run: number, state, item, isOver }) as ChatEvent;
  const python = { type: "code_interpreter_call", code: "1+1", container_id: "c", outputs: null };
  const remote = { type: "mcp_call", name: "n", server_label: "s", arguments: '{"a":1}' };

  test("are items with the events of their types, with their input in one piece", () => {
    const outputs = [{ type: "logs", logs: "2" }];
    const events = rendered([
      text("Let me see."),
      run(0, "in_progress", python),
      run(1, "in_progress", remote),
      run(0, "interpreting", python),
      run(1, "failed", { ...remote, error: { type: "http_error", code: 500, message: "m" } }, true),
      run(0, "completed", { ...python, outputs }, true),
      // Behind its end nothing is said of it.
      run(0, "interpreting", python),
      text("Two."),
      finish("stop"),
    ]);
    const ofRuns = events.filter(({ type }) => /_call/.test(String(type)));
    expect(ofRuns.map(({ type }) => String(type).replace("response.", ""))).toEqual([
      "code_interpreter_call.in_progress",
      "code_interpreter_call_code.delta",
      "code_interpreter_call_code.done",
      "mcp_call.in_progress",
      "mcp_call_arguments.delta",
      "mcp_call_arguments.done",
      "code_interpreter_call.interpreting",
      "mcp_call.failed",
      "code_interpreter_call.completed",
    ]);
    const { response } = events.at(-1) as { response: { output: Fields[] } };
    expect(response.output).toMatchObject([
      { type: "message", content: [{ text: "Let me see." }] },
      { type: "code_interpreter_call", status: "completed", outputs },
      { type: "mcp_call", status: "failed" },
      { type: "message", content: [{ text: "Two." }] },
    ]);
  });

  test("that have not ended when the answer does have failed, and say what limit ended it", () => {
    const events = rendered([
      run(0, "in_progress", { type: "file_search_call", queries: ["a"], results: null }),
      { type: "finish", choice, reason: "length", limit: "max_cost" },
    ]);
    expect(events.at(-1)).toMatchObject({
      type: "response.incomplete",
      response: {
        incomplete_details: { reason: "max_cost" },
        output: [{ type: "file_search_call", status: "failed" }],
      },
    });
  });
});

describe("typed events as those of the Responses API", () => {
  test("text, from the response's creation to its completion", () => {
    const events = rendered([
      text("a"),
      text("ü"),
      finish("stop"),
      { type: "usage", usage: USAGE },
    ]);
    expect(events.map(({ type }) => type)).toEqual([
      "response.created",
      "response.in_progress",
      "response.output_item.added",
      "response.content_part.added",
      "response.output_text.delta",
      "response.output_text.delta",
      "response.output_text.done",
      "response.content_part.done",
      "response.output_item.done",
      "response.completed",
    ]);
    const response = events.at(-1)!.response as Fields;
    expect(response).toMatchObject({
      id: `resp_${NAME}`,
      status: "completed",
      model: "test/m",
      completed_at: 2,
      usage: {
        input_tokens: 30,
        input_tokens_details: { cached_tokens: 10 },
        output_tokens: 9,
        total_tokens: 39,
        cost: 0.5,
      },
    });
    expect(response.output).toEqual(itemsOf(events));
    expect(itemsOf(events)).toMatchObject([{ content: [{ type: "output_text", text: "aü" }] }]);
  });

  test("calls that come interleaved, each with its own item, and {} for one without arguments", () => {
    const events = rendered([
      call(0, { id: "a", name: "look", arguments: '{"x":' }),
      call(1, { id: "b", name: "wait" }),
      call(0, { arguments: "1}" }),
      call(7, { arguments: "stray" }),
      finish("tool_calls"),
    ]);
    expect(itemsOf(events)).toEqual([
      {
        id: `fc_${NAME}00`,
        type: "function_call",
        call_id: "a",
        name: "look",
        arguments: '{"x":1}',
        status: "completed",
      },
      {
        id: `fc_${NAME}01`,
        type: "function_call",
        call_id: "b",
        name: "wait",
        arguments: "{}",
        status: "completed",
      },
    ]);
    const done = events.filter(({ type }) => type === "response.function_call_arguments.done");
    expect(done.map((event) => event.arguments)).toEqual(['{"x":1}', "{}"]);
  });

  test("reasoning as content, or as a summary where one is asked for, with what continues it", () => {
    const signed: ReasoningDetail = { type: "reasoning.text", signature: "sig", index: 0 };
    const pieces: ChatEvent[] = [
      reasoning("Let ", { type: "reasoning.text", text: "Let ", index: 0 }),
      reasoning("me.", { type: "reasoning.text", text: "me.", index: 0 }),
      reasoning("", signed),
      text("Well."),
      finish("stop"),
    ];
    const plain = rendered(pieces);
    expect(textsOf(plain, "response.reasoning.delta")).toBe("Let me.");
    const [item] = itemsOf(plain);
    expect(item).toMatchObject({
      type: "reasoning",
      summary: [],
      content: [{ type: "reasoning_text", text: "Let me." }],
    });
    expect(detailsIn(item!.encrypted_content)).toEqual([
      { type: "reasoning.text", text: "Let me.", signature: "sig", index: 0 },
    ]);
    const summarized = rendered(pieces, { showsSummary: true });
    expect(textsOf(summarized, "response.reasoning_summary_text.delta")).toBe("Let me.");
    expect(itemsOf(summarized)[0]).toMatchObject({
      summary: [{ type: "summary_text", text: "Let me." }],
    });
  });

  test("a signature behind the text is an item of its own, and takes the text nothing", () => {
    const late: ReasoningDetail = { type: "reasoning.encrypted", data: "x", format: "google" };
    const events = rendered([text("a"), reasoning("", late), text("b"), finish("stop")]);
    expect(itemsOf(events)).toMatchObject([
      { type: "message", content: [{ text: "ab" }] },
      { type: "reasoning", id: `rs_${NAME}01` },
    ]);
    expect(detailsIn(itemsOf(events)[1]!.encrypted_content)).toEqual([{ ...late }]);
  });

  test("a refusal, annotations and log probabilities", () => {
    const logprobs = {
      content: [
        { token: "a", logprob: -1, bytes: null, top_logprobs: [{ token: "b", logprob: -2 }] },
      ],
    };
    const annotations = [
      { type: "url_citation", url_citation: { url: "https://example.com", title: "E" } },
    ];
    const events = rendered([
      text("a", { logprobs }),
      text("", { annotations }),
      { type: "refusal", choice, text: "No." },
      finish("content_filter"),
    ]);
    expect(itemsOf(events)).toMatchObject([
      {
        status: "incomplete",
        content: [
          {
            text: "a",
            annotations: [{ url: "https://example.com", title: "E", start_index: 0, end_index: 0 }],
            logprobs: [{ token: "a", bytes: [], top_logprobs: [{ token: "b", bytes: [] }] }],
          },
          { type: "refusal", refusal: "No." },
        ],
      },
    ]);
    expect(events.at(-1)).toMatchObject({
      type: "response.incomplete",
      response: { status: "incomplete", incomplete_details: { reason: "content_filter" } },
    });
  });

  test("of a custom tool the call's text", () => {
    const output = new ByteBuffer();
    const renderer = rendererOf({ customTools: ["patch"] }, output);
    renderer.push([
      call(0, { id: "c", name: "patch", arguments: '{"inp' }),
      call(0, { arguments: 'ut":"a \\"b\\""}' }),
      finish("tool_calls"),
    ]);
    const frames = Buffer.from(output.take()).toString().split("\n\n");
    const done = frames.find((frame) => frame.startsWith("event: response.output_item.done"))!;
    expect(JSON.parse(done.split("data: ")[1]!).item).toEqual({
      id: `ctc_${NAME}00`,
      type: "custom_tool_call",
      call_id: "c",
      name: "patch",
      input: 'a "b"',
      status: "completed",
    });
  });

  test("a failure on the way is the response's, and the error of all streams", () => {
    const output = new ByteBuffer();
    const renderer = rendererOf({}, output);
    renderer.push([text("a")]);
    const error = new GatewayError("provider_error", "It broke.");
    output.add(renderer.failing(error, "req_1"));
    const events = responseEvents(Buffer.from(output.take()).toString());
    expect(events.slice(-2)).toMatchObject([
      {
        type: "response.failed",
        response: {
          status: "failed",
          error: { code: "provider_error", message: "It broke." },
          output: [{ status: "incomplete", content: [{ text: "a" }] }],
        },
      },
      { type: "error", error: { code: "provider_error" }, request_id: "req_1" },
    ]);
  });

  test("a whole answer is what its stream amounts to", () => {
    const said = { reasoning: "Hm.", text: "Well.", finish: "tool_calls" as const };
    const toolCalls = [{ id: "a", name: "look", arguments: "{}" }];
    const options = {
      name: NAME,
      showsSummary: true,
      customTools: new Set<string>(),
      namespaced: new Map(),
    };
    const completion = { choices: [{ ...said, toolCalls }], usage: USAGE };
    const { body } = outputRender.render(completion, options);
    const events = rendered(
      [
        reasoning("Hm."),
        text("We"),
        text("ll."),
        call(0, { id: "a", name: "look", arguments: "{}" }),
        finish("tool_calls"),
      ],
      { showsSummary: true },
    );
    expect(JSON.parse(`[${body}]`)).toEqual(itemsOf(events));
  });
});

test("annotations and log probabilities of a raw stream reach the response", async () => {
  const chunks = [
    { delta: { content: "a" }, logprobs: { content: [{ token: "a", logprob: -1, bytes: [97] }] } },
    {
      delta: {
        annotations: [{ type: "url_citation", url_citation: { url: "https://a.example" } }],
      },
    },
    { delta: {}, finish_reason: "stop" },
  ];
  const frames = chunks.map(
    (one) => `data: ${JSON.stringify({ choices: [{ index: 0, ...one }] })}\n\n`,
  );
  const body = new Blob([...frames, "data: [DONE]\n\n"]).stream();
  const options = { id: "x", model: "m", hidesReasoning: false, nowSeconds: 1 };
  const events = new OpenAiStream(body.getReader(), systemClock).events(options);
  const all: ChatEvent[] = [];
  for (let read = await events.read(); !read.done; read = await events.read()) {
    all.push(...read.value!);
  }
  expect(itemsOf(rendered(all))).toMatchObject([
    {
      content: [
        {
          text: "a",
          annotations: [{ url: "https://a.example" }],
          logprobs: [{ token: "a", logprob: -1 }],
        },
      ],
    },
  ]);
});
