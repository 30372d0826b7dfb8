import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { assertOpenResponses, responseEvents, withoutForeign } from "../support/open-responses.ts";
import { randomPieceLength, seededRandom } from "../upstream/random.ts";
import { responsesRecordings } from "../upstream/responses-recordings.ts";

/** Responses of models that OpenAI serves by its own Responses interface, behind the whole gateway. */

type Fields = Record<string, unknown>;

const MODEL = "openai/gpt-5.1-codex-mini";
const SEEDS = [1, 20, 300];
const LOOK = { type: "function", name: "look", parameters: { type: "object", properties: {} } };

let gateway: TestGateway;
let answer: () => Response;
let asked: Fields;
const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  async fetch(request) {
    if (!request.url.endsWith("/responses")) return new Response(null, { status: 404 });
    asked = (await request.json()) as Fields;
    return answer();
  },
});

beforeAll(async () => {
  const baseUrl = `http://127.0.0.1:${server.port}`;
  const configuration = {
    providers: [{ id: "openai", type: "openai", base_url: baseUrl, api_key: "sk-test" }],
  };
  gateway = await startTestGateway({ configuration });
});
afterAll(async () => {
  await expectBooksClosed(gateway);
  await gateway.stop();
  await server.stop(true);
});

function replayed(text: string, stream: boolean, seed: number): Response {
  const type = stream ? "text/event-stream" : "application/json";
  const bytes = new TextEncoder().encode(text);
  const random = seededRandom(seed);
  let at = 0;
  const body = new ReadableStream({
    async pull(controller) {
      await Bun.sleep(0);
      const end = Math.min(at + randomPieceLength(random), bytes.length);
      controller.enqueue(bytes.slice(at, end));
      at = end;
      if (at === bytes.length) controller.close();
    },
  });
  return new Response(body, { headers: { "content-type": type } });
}

interface Got {
  readonly body: Fields;
  readonly output: readonly Fields[];
  readonly response: Response;
  readonly events: readonly Fields[];
}

/** What a client gets, after its form was checked. */
async function respond(fields: Fields): Promise<Got> {
  const response = await gateway.request("POST", "/v1/responses", { model: MODEL, ...fields });
  const text = await response.text();
  expect(response.status, text).toBe(200);
  const options = { allowsForeign: true };
  const events = fields.stream === true ? responseEvents(text, options) : undefined;
  const body = (events === undefined ? JSON.parse(text) : events.at(-1)!.response) as Fields;
  assertOpenResponses("ResponseResource", withoutForeign(body));
  const output = body.output as Fields[];
  if (events !== undefined) {
    const done = events.filter(({ type }) => type === "response.output_item.done");
    const byPlace = done.sort(
      (one, other) => Number(one.output_index) - Number(other.output_index),
    );
    expect(byPlace.map(({ item }) => item as Fields)).toEqual([...output]);
  }
  return { body, output, response, events: events ?? [] };
}

/** An item but for what is the gateway's own: ids, and the form of what continues reasoning. */
function essence(item: Fields): Fields {
  const { id: _, ...rest } = item;
  if (item.type === "message") {
    const parts = item.content as Fields[];
    const content = parts.map(({ type, text, refusal, annotations }) => ({
      ...{ type, text, refusal, annotations: annotations ?? [] },
    }));
    return { type: item.type, content, phase: item.phase };
  }
  if (item.type === "function_call") {
    const { type, call_id: callId, name, arguments: json } = item;
    return { type, callId, name, json };
  }
  if (item.type !== "reasoning") return rest;
  const { type, summary, encrypted_content: encrypted } = item;
  return { type, summary, isEncrypted: typeof encrypted === "string" };
}

/** Events of items that the gateway hands on as they are, without ids and numbers. */
function ownEvents(events: readonly Fields[]): Fields[] {
  return events
    .filter(({ type }) => /^response\.[a-z]+_.*_call/.test(String(type)))
    .map(({ sequence_number: _, item_id: _id, ...event }) => event)
    .filter(({ type }) => !String(type).startsWith("response.function_call"));
}

const RECORDINGS = responsesRecordings().map((one) => ({ ...one, ...sentIn(one) }));

/** Items and usage of what a provider sent; the last event of a stream encrypts once more. */
function sentIn({ text, stream }: { readonly text: string; readonly stream: boolean }) {
  if (!stream) return { ...itemsIn(JSON.parse(text) as Fields, undefined), sentEvents: [] };
  const events = [...text.matchAll(/^data: (.*)$/gm)].map(([, json]) => JSON.parse(json!));
  const done = events.filter(({ type }) => type === "response.output_item.done");
  const items = done.map(({ item }) => item);
  return { ...itemsIn(events.at(-1).response, items), sentEvents: ownEvents(events) };
}

function itemsIn({ output, usage }: Fields, items: readonly Fields[] | undefined) {
  return { items: items ?? (output as Fields[]), usage: usage as Fields };
}

describe("each recorded answer", () => {
  test.each(RECORDINGS.map((one) => [one.name, one] as const))(
    "%s has the same items in the same order, and its usage",
    async (_name, { text, stream, items, usage, sentEvents }) => {
      for (const seed of stream ? SEEDS : [1]) {
        answer = () => replayed(text, stream, seed);
        const { body, output, response, events } = await respond({ input: "hello", stream });
        expect(output.map(essence)).toEqual(items.map(essence));
        expect(ownEvents(events)).toEqual(sentEvents);
        expect(body.usage).toMatchObject(usage);
        const { chargeNano, estimated } = await billOfResponse(gateway, response);
        expect(estimated).toBeFalse();
        expect((body.usage as Fields).cost).toBe(Number(chargeNano) / 1e9);
      }
    },
  );

  const REASONING = RECORDINGS.filter(({ said }) => said.encrypted.some(Boolean));

  test.each(REASONING.map((one) => [one.name, one] as const))(
    "%s is continued with its reasoning, by its client and from the store",
    async (_name, recorded) => {
      await expectContinued(recorded);
    },
  );
});

interface Sent {
  readonly text: string;
  readonly stream: boolean;
  readonly items: readonly Fields[];
}

/** What the provider gets in the next turn: the items that it sent, each before what it led to. */
async function expectContinued({ text, stream, items }: Sent): Promise<void> {
  answer = () => replayed(text, stream, 7);
  const first = { input: "hello", include: ["reasoning.encrypted_content"], stream };
  const { body, output } = await respond({ ...first, tools: [LOOK] });
  const outputs = items
    .filter(({ type }) => type === "function_call")
    .map(({ call_id }) => ({ type: "function_call_output", call_id, output: "dark" }));
  const next = outputs.length > 0 ? outputs : [{ role: "user", content: "Go on." }];
  const turns = [
    { input: [{ role: "user", content: "hello" }, ...output, ...next], store: false },
    { input: next, previous_response_id: body.id },
  ];
  for (const turn of turns) {
    await respond({ ...turn, stream, tools: [LOOK] });
    const input = asked.input as Fields[];
    expect(input.slice(1, 1 + items.length)).toMatchObject(items.map(asInput));
    expect(input).toHaveLength(1 + items.length + next.length);
  }
}

function asInput(item: Fields): Fields {
  const { type } = item;
  if (type === "reasoning") {
    const { id, summary, encrypted_content } = item;
    return { type, id, summary, encrypted_content };
  }
  if (type === "message") {
    const content = (item.content as Fields[]).map(({ text }) => ({ type: "output_text", text }));
    return { type, role: "assistant", content };
  }
  const { call_id, name, arguments: json } = item;
  return { type, call_id, name, arguments: json };
}

const USAGE = { input_tokens: 9, output_tokens: 9, total_tokens: 18 };
const thought = (name: string) => ({
  id: `rs_${name}`,
  type: "reasoning",
  summary: [],
  encrypted_content: `gAAAA${name}`,
});
const parts = (...texts: string[]) => texts.map((text) => ({ type: "summary_text", text }));
const told = (name: string) => ({ ...thought(name), summary: parts("**One**\n\nFirst.", "Then.") });
const said = (text: string) => ({
  id: `msg_${text}`,
  type: "message",
  role: "assistant",
  status: "completed",
  content: [{ type: "output_text", text, annotations: [] }],
});
const called = (name: string) => ({
  id: `fc_${name}`,
  type: "function_call",
  status: "completed",
  call_id: `call_${name}`,
  name: "look",
  arguments: `{"at":"${name}"}`,
});

/** An answer of these items as OpenAI sends it, whole or streamed. */
function answerOf(items: readonly Fields[], stream: boolean): Sent {
  const response = { object: "response", status: "completed", output: items, usage: USAGE };
  if (!stream) return { text: JSON.stringify(response), stream, items };
  const events = items.flatMap((item, output_index) => {
    const content = (item.content ?? []) as Fields[];
    const delta = content.map(({ text }) => ({ type: "response.output_text.delta", delta: text }));
    const summary = ((item.summary ?? []) as Fields[]).flatMap(({ text }, summary_index) => [
      { type: "response.reasoning_summary_part.added", summary_index },
      { type: "response.reasoning_summary_text.delta", summary_index, delta: text },
    ]);
    const begun = { ...item, content: [], ...(item.arguments !== undefined && { arguments: "" }) };
    return [
      { type: "response.output_item.added", item: begun },
      ...summary,
      ...delta,
      { type: "response.output_item.done", item },
    ].map((event) => ({ ...event, output_index }));
  });
  const all = [...events, { type: "response.completed", response }];
  const text = all.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
  return { text: text.join(""), stream, items };
}

describe.each([
  ["streamed", true],
  ["whole", false],
] as const)("an answer that thinks between what it says and does, %s", (_how, stream) => {
  const items = [told("a"), said("one"), thought("b"), called("c"), called("d")];

  test("keeps its items apart and in order", async () => {
    const all = [...items.slice(0, 2), said("two"), thought("e"), ...items.slice(2), said("three")];
    const { text } = answerOf(all, stream);
    answer = () => replayed(text, stream, 7);
    const { output } = await respond({ input: "hello", stream });
    expect(output.map(essence)).toEqual(all.map(essence));
  });

  test("is continued in its order", async () => {
    await expectContinued(answerOf(items, stream));
  });
});

test("a request reaches OpenAI with all that it asks for", async () => {
  const { text } = answerOf([called("c")], false);
  answer = () => replayed(text, false, 7);
  const schema = { type: "object", properties: {} };
  const format = { type: "json_schema", name: "n", description: "d", schema, strict: true };
  const kept = {
    text: { format, verbosity: "low" },
    reasoning: { effort: "high", summary: "detailed" },
    tools: [{ ...LOOK, description: "Looks.", strict: true }],
    tool_choice: {
      type: "allowed_tools",
      mode: "required",
      tools: [{ type: "function", name: "look" }],
    },
    parallel_tool_calls: false,
    max_output_tokens: 50,
    safety_identifier: "s",
    prompt_cache_key: "k",
    service_tier: "flex",
    user: "u",
  };
  const own = { metadata: { a: "b" }, max_tool_calls: 3, instructions: "Be brief." };
  const request = { model: MODEL, input: "hello", ...kept, ...own };
  const response = await gateway.request("POST", "/v1/responses", request);
  // The description of Open Responses has no schemas in repeated formats, which OpenAI repeats.
  expect(await response.json()).toMatchObject({ ...kept, ...own });
  expect(response.headers.get("x-gateway-dropped-parameters")).toBeNull();
  expect(asked).toEqual({
    ...kept,
    model: "gpt-5.1-codex-mini",
    input: [
      { type: "message", role: "system", content: "Be brief." },
      { type: "message", role: "user", content: "hello" },
    ],
    stream: false,
    store: false,
    include: ["reasoning.encrypted_content"],
  });
});

test("a tier that costs more than the catalogue says is refused, as of a chat", async () => {
  const { status } = await gateway.request("POST", "/v1/responses", {
    model: MODEL,
    input: "hello",
    service_tier: "priority",
  });
  expect(status).toBe(400);
});
