import { afterAll, beforeAll, expect, test } from "bun:test";
import { connect } from "node:net";
import { addSecretKey } from "../support/api-keys.ts";
import { type ChatGateway, chatBody, startChatGateway } from "../support/chat-gateway.ts";
import { expectError } from "../support/error-envelope.ts";
import { until } from "../support/until.ts";

const PATH = "/v1/chat/completions";
const LONG_BYTES = 65_537;

let gateway: ChatGateway;
let slug: string;
beforeAll(async () => {
  gateway = await startChatGateway();
  slug = gateway.modelThat({ do: "complete" });
});
afterAll(() => gateway.stop());

const bodyOf = (bytes: number, fields: Record<string, unknown> = {}) => {
  const empty = JSON.stringify({ ...chatBody(slug, fields), padding: "" });
  return JSON.stringify({ ...chatBody(slug, fields), padding: "x".repeat(bytes - empty.length) });
};

/** Sends the head of a request and a part of its body, whose rest never comes. */
function beginBody(key: string, framing: string, first = "") {
  let said = "";
  const socket = connect(Number(new URL(gateway.baseUrl).port), "127.0.0.1", () => {
    socket.write(
      `POST ${PATH} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer ${key}\r\n` +
        `content-type: application/json\r\n${framing}\r\n\r\n${first}`,
    );
  });
  socket.on("data", (data) => {
    said += data.toString();
  });
  socket.on("error", () => {});
  return { socket, said: () => said };
}

async function refusalOf(begun: ReturnType<typeof beginBody>, code: string): Promise<void> {
  await until(`it is refused as ${code}`, () => begun.said().includes(code));
  begun.socket.destroy();
}

async function spentKey(): Promise<string> {
  const key = await addSecretKey(gateway, { dailyBudgetNano: 10_000_000n });
  const [row] = await gateway.sql<
    { id: string }[]
  >`SELECT id FROM api_keys ORDER BY id DESC LIMIT 1`;
  const { id } = row!;
  const day = new Date().toISOString().slice(0, 10);
  await gateway.sql`INSERT INTO accounts (id, kind, organization_id, key_id, period_start, posted_nano)
    VALUES (${`day:${id}:${day}`}, 'day', ${gateway.organizationId}, ${id}, ${day}, 10000000)`;
  return key;
}

test("a long body is not read of a key without budget, from the head alone", async () => {
  const key = await spentKey();
  await refusalOf(beginBody(key, `content-length: ${LONG_BYTES}`), "budget_exhausted");
});

test("a body in chunks is not read further than 64 KB of a key without budget", async () => {
  const key = await spentKey();
  const chunk = `${LONG_BYTES.toString(16)}\r\n${" ".repeat(LONG_BYTES)}\r\n`;
  await refusalOf(beginBody(key, "transfer-encoding: chunked", chunk), "budget_exhausted");
});

test("a long body is not read of an organization without credits", async () => {
  const { secretKey } = await gateway.addOrganization({ creditUsd: 0 });
  await refusalOf(beginBody(secretKey, `content-length: ${LONG_BYTES}`), "insufficient_credits");
});

test("401, 403, 415 and 413 come before the money of a long body", async () => {
  const framing = `content-length: ${LONG_BYTES}`;
  await refusalOf(beginBody("none", framing), "invalid_api_key");
  const unscoped = await addSecretKey(gateway, { scopes: ["embeddings"] });
  await refusalOf(beginBody(unscoped, framing), "missing_scope");
  const key = await spentKey();
  await refusalOf(beginBody(key, `content-length: ${33 * 1_048_576}`), "payload_too_large");
});

test("a long body takes one place of the rate, valid or not, and a short bad one none", async () => {
  const key = await addSecretKey(gateway, { rateLimitRpm: 3 });
  const send = (body: string) => gateway.request("POST", PATH, body, { key });
  await expectError(await send("{"), 400, "invalid_json");
  const served = await send(bodyOf(LONG_BYTES));
  expect(served.status).toBe(200);
  expect(served.headers.get("x-ratelimit-remaining")).toBe("2");
  await served.text();
  const bad = await send(`{${" ".repeat(LONG_BYTES)}`);
  await expectError(bad, 400, "invalid_json");
  expect(bad.headers.get("x-ratelimit-remaining")).toBe("1");
  const short = await send(JSON.stringify(chatBody(slug)));
  expect(short.headers.get("x-ratelimit-remaining")).toBe("0");
  await short.text();
  await refusalOf(beginBody(key, `content-length: ${LONG_BYTES}`), "rate_limit_exceeded");
});

test.each([
  ["members", `{${'"":1,'.repeat(200_000)}"":1}`, "objects, arrays and members"],
  ["objects", `[${"{},".repeat(200_000)}{}]`, "objects, arrays and members"],
  ["elements", `[${"1,".repeat(1_000_000)}1]`, "elements"],
  ["levels", `${"[".repeat(65)}${"]".repeat(65)}${" ".repeat(LONG_BYTES)}`, "64 levels"],
])(
  "a body of too many %s is refused before it is parsed, and before it has come whole",
  async (_, value, told) => {
    const text = `{"model": ${JSON.stringify(slug)}, "messages": [{"role": "user", "content": "hi"}], "x": ${value}`;
    const framing = `content-length: ${text.length + 1_000_000}`;
    const begun = beginBody(gateway.secretKey, framing, text);
    await refusalOf(begun, told);
    expect(begun.said()).toStartWith("HTTP/1.1 400");
  },
);

test("characters that slices cut are whole again, and one that is cut off is no JSON", async () => {
  // Of three bytes each, so that some lie across any boundary of slices and of pieces.
  const text = "한".repeat(1_000_000);
  const fields = { messages: [{ role: "user", content: text }] };
  const response = await gateway.request("POST", PATH, {
    ...chatBody(slug, fields),
    max_tokens: 8,
  });
  expect(response.status).toBe(200);
  await response.text();
  const sent = gateway.upstream.served.at(-1)!.requestBody as { messages: { content: string }[] };
  expect(sent.messages[0]!.content === text).toBeTrue();
  const whole = Buffer.from(JSON.stringify(chatBody(slug, fields)));
  const cut = await fetch(`${gateway.baseUrl}${PATH}`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${gateway.secretKey}`,
      "content-type": "application/json",
    },
    body: whole.subarray(0, whole.lastIndexOf(Buffer.from("한")) + 2),
  });
  const { error } = await expectError(cut, 400, "invalid_json");
  expect(error.message).toContain("UTF-8");
});
