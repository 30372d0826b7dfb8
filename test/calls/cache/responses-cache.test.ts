import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { type ChatGateway, startChatGateway } from "../../support/chat-gateway.ts";
import { billOfResponse, expectBooksClosed } from "../../support/ledger-checks.ts";
import { assertOpenResponses, responseEvents } from "../../support/open-responses.ts";
import type { Behaviour } from "../../upstream/behaviours.ts";

type Fields = Record<string, unknown>;

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway();
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

const ON = { headers: { "x-gateway-cache": "on" } };
const send = (slug: string, body: Fields = {}) =>
  gateway.request("POST", "/v1/responses", { model: `test/${slug}`, input: "hello", ...body }, ON);
const callsOf = (slug: string) => gateway.upstream.servedOf(slug).length;
const outcomeOf = (response: Response) => response.headers.get("x-gateway-cache");
const stored = async (id: unknown) => gateway.request("GET", `/v1/responses/${id}`);

async function respond(slug: string, body: Fields = {}) {
  const response = await send(slug, body);
  const text = await response.text();
  expect(response.status, text).toBe(200);
  return { response, outcome: outcomeOf(response), body: JSON.parse(text) as Fields };
}

/** The events of a stream, without what only counts them. */
async function streamed(slug: string, body: Fields = {}) {
  const response = await send(slug, { ...body, stream: true });
  const text = await response.text();
  expect(text.endsWith("data: [DONE]\n\n")).toBeTrue();
  // Custom tools are not in the description.
  const isDescribed = !text.includes('"custom"');
  const events = isDescribed ? (responseEvents(text) as Fields[]) : dataIn(text);
  expect(events.map((event) => event.sequence_number)).toEqual([...events.keys()]);
  return { outcome: outcomeOf(response), events, whole: events.at(-1)!.response as Fields };
}

function dataIn(text: string): Fields[] {
  const lines = text.split("\n").filter((line) => line.startsWith("data: {"));
  return lines.map((line) => JSON.parse(line.slice(6)) as Fields);
}

/** Without what each response has of its own. */
function compared(response: Fields): unknown {
  const { id, created_at, completed_at, usage, ...rest } = response;
  const name = String(id).replace("resp_", "");
  const cost = { ...(usage as Fields), cost: 0 };
  return JSON.parse(JSON.stringify({ ...rest, usage: cost }).replaceAll(name, "NAME"));
}

const ANSWERS: readonly [string, Behaviour, Fields][] = [
  ["a text", { do: "complete", content: "Grüße ✓", events: 4 }, {}],
  [
    "calls of functions",
    { do: "complete", toolCalls: [{ name: "look", arguments: '{"at":"ü"}' }] },
    { tools: [{ type: "function", name: "look", parameters: { type: "object" } }] },
  ],
  [
    "a call of a custom tool",
    { do: "complete", toolCalls: [{ name: "write", arguments: '{"input":"a b"}' }] },
    { tools: [{ type: "custom", name: "write" }] },
  ],
  ["reasoning", { do: "complete", reasoning: "thus", content: "so" }, {}],
  [
    "reasoning as a summary",
    { do: "complete", reasoning: "thus", content: "so" },
    { reasoning: { summary: "auto" } },
  ],
];

describe.each(ANSWERS)("%s", (_, behaviour, body) => {
  test.each([[false], [true]])("is given again, made in a stream: %j", async (isStream) => {
    const slug = gateway.modelThat(behaviour);
    const made = isStream ? (await streamed(slug, body)).whole : (await respond(slug, body)).body;
    const hit = await respond(slug, body);
    expect(hit.outcome).toBe("hit");
    expect(compared(hit.body)).toEqual(compared(made));
    expect(hit.body.id).not.toBe(made.id);
    expect(hit.body.usage).toMatchObject({ cost: 0 });
    if (!JSON.stringify(body).includes('"custom"')) {
      assertOpenResponses("ResponseResource", hit.body);
    }
    const { events, outcome, whole } = await streamed(slug, body);
    expect(outcome).toBe("hit");
    expect(compared(whole)).toEqual(compared(made));
    // The same kinds of events, in the same order, as those of the provider's own stream.
    const live = await streamed(slug, { ...body, temperature: 0.25 });
    expect(live.outcome).toBe("miss");
    const kinds = (all: readonly Fields[]) =>
      all.map(({ type }) => type).filter((type, at, list) => type !== list[at - 1]);
    expect(kinds(events)).toEqual(kinds(live.events));
    expect(callsOf(slug)).toBe(2);
  });
});

test("a hit is a response of its own, stored and continued where its request asks for that", async () => {
  const slug = gateway.modelThat({ do: "complete", content: "first" }, { do: "complete" });
  const made = await respond(slug, { metadata: { run: "1" } });
  const hit = await respond(slug, { metadata: { run: "2" } });
  expect(hit.outcome).toBe("hit");
  expect(hit.body.metadata).toEqual({ run: "2" });
  expect(await (await stored(hit.body.id)).json()).toEqual(hit.body);
  expect(await (await stored(made.body.id)).json()).toEqual(made.body);
  const streamedHit = await streamed(slug);
  expect(streamedHit.outcome).toBe("hit");
  expect(await (await stored(streamedHit.whole.id)).json()).toEqual(streamedHit.whole);
  const next = await respond(slug, { input: "and?", previous_response_id: hit.body.id });
  expect(next.outcome).toBe("miss");
  const sent = gateway.upstream.servedOf(slug).at(-1)!.requestBody!.messages as Fields[];
  expect(sent.map(({ content }) => content)).toEqual(["hello", "first", "and?"]);
  const unstored = await respond(slug, { store: false });
  expect(unstored.outcome).toBe("hit");
  expect((await stored(unstored.body.id)).status).toBe(404);
  const again = await respond(slug, { input: "and?", previous_response_id: hit.body.id });
  expect(again.outcome).toBe("hit");
  expect((await billOfResponse(gateway, again.response)).chargeNano).toBe(0n);
  // Another response before it is another conversation.
  const other = await respond(slug, { input: "and?", previous_response_id: made.body.id });
  expect(other.outcome).toBe("miss");
});

test("answers in conversations are not kept: each goes on from the one before", async () => {
  const slug = gateway.modelThat({ do: "complete", content: "once" });
  const created = await gateway.request("POST", "/v1/conversations", {});
  const { id: conversation } = (await created.json()) as Fields;
  for (const _ of [1, 2]) expect((await respond(slug, { conversation })).outcome).toBeNull();
  const [, second] = gateway.upstream.servedOf(slug);
  expect((second!.requestBody as { messages: unknown[] }).messages).toHaveLength(3);
});

test("what its own limit ended is given again, what was filtered is asked for again", async () => {
  const answer = (finish: string): Behaviour => ({
    do: "frames",
    frames: [
      {
        choices: [
          { index: 0, message: { role: "assistant", content: "so" }, finish_reason: finish },
        ],
        usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
      },
    ],
  });
  const limited = gateway.modelThat(answer("length"));
  await respond(limited, { max_output_tokens: 16 });
  const hit = await respond(limited, { max_output_tokens: 16 });
  expect(hit.outcome).toBe("hit");
  expect(hit.body).toMatchObject({
    status: "incomplete",
    incomplete_details: { reason: "max_output_tokens" },
  });
  const filtered = gateway.modelThat(answer("content_filter"));
  await respond(filtered);
  expect((await respond(filtered)).outcome).toBe("miss");
});
