import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { expectError } from "../support/error-envelope.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { readStream } from "../support/stream-reader.ts";
import { until } from "../support/until.ts";

let gateway: ChatGateway;
let slug: string;
beforeAll(async () => {
  gateway = await startChatGateway({ environment: { GATEWAY_DEBUG_ECHO: "true" } });
  slug = gateway.modelThat({ do: "complete" });
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

const ECHO = { debug: { echo_upstream_body: true } };
const PADDING = " ".repeat(262_145);

interface Debug {
  readonly echo_upstream_body: unknown;
  readonly is_truncated?: boolean;
}

async function debugOf(body: Record<string, unknown>, padding = ""): Promise<Debug> {
  const text = JSON.stringify({ model: `test/${slug}`, ...ECHO, ...body }) + padding;
  const response = await gateway.request("POST", "/v1/chat/completions", text);
  expect(response.status).toBe(200);
  const answer = (await response.json()) as { debug: Debug; choices: unknown[] };
  expect(answer.choices).toHaveLength(1);
  return answer.debug;
}

test("a whole answer shows what was sent to the provider, without its key", async () => {
  const body = { messages: [{ role: "user", content: "hello" }], temperature: 0.5, user: "u" };
  for (const padding of ["", PADDING]) {
    const debug = await debugOf(body, padding);
    expect(debug).toEqual({ echo_upstream_body: gateway.upstream.served.at(-1)!.requestBody! });
    expect(debug.echo_upstream_body).toMatchObject({ model: slug, temperature: 0.5 });
    expect(JSON.stringify(debug)).not.toContain("sk-upstream");
  }
});

test("a stream shows it in its first chunk, and only there", async () => {
  const response = await gateway.chat(slug, { ...ECHO, stream: true });
  const { chunks } = await readStream(response);
  const [first, ...others] = chunks as unknown as readonly { debug?: Debug; choices: unknown[] }[];
  expect(first!.choices).toEqual([]);
  expect(first!.debug!.echo_upstream_body).toEqual(gateway.upstream.served.at(-1)!.requestBody!);
  expect(others.some(({ debug }) => debug !== undefined)).toBe(false);
  expect(new Set(chunks.map((chunk) => (chunk as { id: string }).id)).size).toBe(1);
});

test("of a long body the beginning is shown, as text", async () => {
  const debug = await debugOf({ messages: [{ role: "user", content: "é".repeat(100_000) }] });
  expect(debug.is_truncated).toBe(true);
  expect(Buffer.byteLength(debug.echo_upstream_body as string)).toBeLessThanOrEqual(32_770);
});

test("an answer that shows it is not kept in the response cache", async () => {
  const headers = { "x-gateway-cache": "on" };
  const ask = (body: Record<string, unknown>) =>
    gateway.chat(slug, { seed: 7, ...body }, { headers });
  await (await ask(ECHO)).arrayBuffer();
  const [first, second] = [await ask({}), await ask({})];
  expect(await first.json()).not.toHaveProperty("debug");
  expect(second.headers.get("x-gateway-cache")).toBe("hit");
  expect(await second.json()).not.toHaveProperty("debug");
  const shown = (await (await ask(ECHO)).json()) as { debug?: Debug };
  expect(shown.debug).toBeDefined();
});

test("nothing is shown without being asked for", async () => {
  for (const debug of [{}, null, { echo_upstream_body: false }]) {
    const response = await gateway.chat(slug, { debug });
    expect(await response.json()).not.toHaveProperty("debug");
  }
});

test("a request with debug, whatever its members, has a log line that tells how it was served", async () => {
  const asked = { user: "u-1", session_id: "s-1", metadata: { tags: ["red"] } };
  const lineOf = async (body: Record<string, unknown>) => {
    const response = await gateway.chat(slug, { ...asked, ...body });
    expect(response.status).toBe(200);
    await response.arrayBuffer();
    const id = response.headers.get("x-gateway-request-id")!;
    await until("the log line", () => gateway.logLines.some((line) => line.includes(id)));
    return JSON.parse(gateway.logLines.find((line) => line.includes(id))!);
  };
  const call = { endpoint: `primary/${slug}`, result: "ok", ms: expect.any(Number) };
  for (const debug of [{}, { verbose: true }, { level: "trace", "any member": [{}] }, ECHO.debug]) {
    for (const stream of [false, true]) {
      const line = await lineOf({ debug, stream });
      expect(line).toMatchObject({ user: "u-1", session_id: "s-1", tags: ["red"], tries: [call] });
      expect(line.queued_ms).toBeGreaterThan(0);
      expect(JSON.stringify(line)).not.toMatch(/hello|any member|trace/);
    }
  }
  for (const debug of [undefined, null]) {
    expect(await lineOf({ debug })).not.toContainAnyKeys(["user", "session_id", "tags", "tries"]);
  }
});

test("what is malformed, or not allowed by the operator, is 400", async () => {
  const wrong = await gateway.chat(slug, { debug: { echo_upstream_body: "yes" } });
  await expectError(wrong, 400, "invalid_body");
  const other = await startChatGateway();
  try {
    const model = other.modelThat({ do: "complete" });
    const refused = await other.chat(model, ECHO);
    const { error } = await expectError(refused, 400, "unsupported_parameter");
    expect(error.message).toContain("operator");
    expect(other.upstream.served).toHaveLength(0);
  } finally {
    await other.stop();
  }
});
