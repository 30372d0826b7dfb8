import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { expectError } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { measureLoopHold, shortestHoldMs } from "../support/loop-hold.ts";

const MEBIBYTE = 1_048_576;
const MAX_PARTS = 16_384;
/** Contract, section 4. */
const MAX_HOLD_MS = 50;

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.stop());

const ROUTES = ["/v1/keys", "/v1/webhooks", "/v1/fine_tuning/jobs"];

function post(path: string, body: BodyInit): Promise<Response> {
  const key = path.includes("fine_tuning") ? gateway.secretKey : gateway.managementKey;
  return fetch(`${gateway.baseUrl}${path}`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body,
  });
}

const members = (count: number) =>
  `{${Array.from({ length: count }, (_, n) => `"${n.toString(36)}":1`).join(",")}}`;
const elements = (count: number) => `{"name":[${"1,".repeat(count - 1)}1]}`;

/** What takes most time for its bytes. */
const BODIES: Readonly<Record<string, string>> = {
  members: members(100_000),
  elements: elements(MEBIBYTE / 2 - 10),
  "empty arrays": `{"name":[${"[],".repeat(MEBIBYTE / 3 - 10)}[]]}`,
  "members as many as are read": members(MAX_PARTS - 1),
  "elements as many as are read": elements(MAX_PARTS),
  "escapes in a string": `{"name":"${"\\u00e9".repeat(MEBIBYTE / 6 - 10)}"}`,
};

describe.each(ROUTES)("POST %s", (path) => {
  test.each(Object.keys(BODIES))(
    "a body of %s does not hold the event loop longer than a moment",
    async (name) => {
      const body = BODIES[name]!;
      expect(body.length).toBeLessThanOrEqual(MEBIBYTE);
      await (await post(path, '{"x":1}')).text();
      const holdMs = await shortestHoldMs(MAX_HOLD_MS, async () => {
        const hold = measureLoopHold();
        const response = await post(path, body);
        const heldMs = hold.stop();
        const { message } = (await expectError(response, 400, "invalid_body")).error;
        expect(message.includes("holds more than 16384")).toBe(!/as many|escapes/.test(name));
        return heldMs;
      });
      console.log(`${path}, ${name}: ${holdMs.toFixed(1)} ms`);
      expect(holdMs).toBeLessThan(MAX_HOLD_MS);
    },
    60_000,
  );
});

test.each([
  ["members", members(MAX_PARTS - 1), members(MAX_PARTS), "objects, arrays and members"],
  ["elements", elements(MAX_PARTS), elements(MAX_PARTS + 1), "elements of arrays"],
])("more %s than 16384 are refused, however the body is framed", async (_, most, more, what) => {
  const message = `The request body holds more than 16384 ${what}.`;
  const inChunks = (text: string) => new Blob([text]).stream();
  for (const framed of [(text: string) => text, inChunks]) {
    const refused = await post("/v1/keys", framed(more));
    expect(await expectError(refused, 400, "invalid_body")).toMatchObject({ error: { message } });
    const checked = await expectError(await post("/v1/keys", framed(most)), 400, "invalid_body");
    expect(checked.error.message).not.toBe(message);
  }
});

test("the longest list of allowed models is far below the limit", async () => {
  const models = Array.from({ length: 1_000 }, (_, n) => `test/${n}-`.padEnd(256, "m"));
  const body = JSON.stringify({ name: "key", allowed_models: models });
  const response = await post("/v1/keys", body);
  expect(response.status).toBe(201);
});
