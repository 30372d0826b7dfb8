import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { generateApiKey } from "../../src/lib/api-key-format.ts";
import { addSecretKey } from "../support/api-keys.ts";
import { type ChatGateway, chatBody, startChatGateway } from "../support/chat-gateway.ts";
import { expectError, readEnvelope } from "../support/error-envelope.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { sendRaw } from "../support/raw-http.ts";

let gateway: ChatGateway;
let body: string;
beforeAll(async () => {
  gateway = await startChatGateway();
  body = JSON.stringify(chatBody(gateway.modelThat({ do: "complete" })));
});
afterAll(() => gateway.stop());

type Header = readonly [name: string, value: string];

/** Sends the request with these headers and no others. */
const send = (...headers: Header[]) =>
  sendRaw(gateway, { headers: [["content-type", "application/json"], ...headers], body });
const authorization = (value: string): Header => ["authorization", value];

describe("an Authorization header that holds no valid key is 401", () => {
  test("none, or one of nothing: missing_api_key", async () => {
    for (const headers of [[], [authorization("")], [authorization("   ")]]) {
      const response = await send(...headers);
      const { error } = await expectError(response, 401, "missing_api_key");
      expect(error.type).toBe("authentication_error");
      expect(response.headers.get("www-authenticate")).toStartWith("Bearer");
    }
  });

  const { key } = generateApiKey("secret");
  const last = key.at(-1) === "A" ? "B" : "A";
  const WRONG: [name: string, value: string][] = [
    ["a well-formed key that nobody has", `Bearer ${key}`],
    ["a key with a wrong checksum", `Bearer ${key.slice(0, -1)}${last}`],
    ["a key of another kind with the same body", `Bearer ${key.replace("_sk_", "_mgmt_")}`],
    ["a key cut off", `Bearer ${key.slice(0, -1)}`],
    ["a key of another service", "Bearer sk-proj-abcdefghijklmnopqrstuvwxyz"],
    ["a word", "Bearer undefined"],
    ["the scheme alone", "Bearer"],
    ["Basic", `Basic ${btoa("user:password")}`],
    ["another scheme", `Token ${key}`],
    ["the key without a scheme", key],
    ["characters beyond ASCII", "Bearer gateway_sk_\u00fc\u00ff"],
    ["SQL", "Bearer ' OR '1'='1"],
    ["10 KB", `Bearer ${"x".repeat(10_240)}`],
    ["10 KB of spaces before a key", `Bearer${" ".repeat(10_240)}${key}`],
  ];
  test.each(WRONG)("%s: invalid_api_key", async (_, value) => {
    const { error } = await expectError(await send(authorization(value)), 401, "invalid_api_key");
    expect(error.message).not.toContain(value);
  });

  test("a valid key with something around it", async () => {
    const valid = gateway.secretKey;
    for (const value of [
      `Bearer x${valid}`,
      `Bearer ${valid}x`,
      `Bearer ${valid} ${valid}`,
      `Bearer ${valid},Bearer ${valid}`,
      `Bearer "${valid}"`,
      `Bearer Bearer ${valid}`,
    ]) {
      await expectError(await send(authorization(value)), 401, "invalid_api_key");
    }
  });

  test("a doubled header, whichever of the two is valid", async () => {
    const valid = authorization(`Bearer ${gateway.secretKey}`);
    const invalid = authorization(`Bearer ${key}`);
    for (const pair of [
      [valid, invalid],
      [invalid, valid],
      [valid, valid],
    ]) {
      await expectError(await send(...pair), 401, "invalid_api_key");
    }
  });

  test("a key that is switched off, has expired, or was deleted", async () => {
    const off = await addSecretKey(gateway, { isActive: false });
    await expectError(await send(authorization(`Bearer ${off}`)), 401, "key_inactive");
    const old = await addSecretKey(gateway, { expiresAtMs: Date.now() - 1_000 });
    await expectError(await send(authorization(`Bearer ${old}`)), 401, "key_expired");
    const gone = await addSecretKey(gateway);
    await gateway.sql`UPDATE api_keys SET deleted_at = clock_timestamp()
      WHERE key_hash = ${new Bun.CryptoHasher("sha256").update(gone).digest("hex")}`;
    await expectError(await send(authorization(`Bearer ${gone}`)), 401, "invalid_api_key");
  });
});

test("the scheme is read in any case, with any spaces behind it (RFC 9110, section 11.1)", async () => {
  for (const scheme of ["Bearer", "bearer", "BEARER", "Bearer  ", "bEaReR"]) {
    const response = await send(authorization(`${scheme} ${gateway.secretKey}`));
    expect(response.status).toBe(200);
  }
});

describe("the request id is the gateway's own", () => {
  const CHOSEN = "req_00000000000000000000000000000000";
  const chosen: Header[] = [
    ["x-request-id", CHOSEN],
    ["x-gateway-request-id", CHOSEN],
    ["request-id", CHOSEN],
    ["traceparent", `00-${"0".repeat(31)}1-${"0".repeat(15)}1-01`],
  ];

  test("in answers", async () => {
    const ids = new Set<string>();
    for (let i = 0; i < 5; i++) {
      const response = await send(authorization(`Bearer ${gateway.secretKey}`), ...chosen);
      const id = response.headers.get("x-gateway-request-id")!;
      expect(id).toMatch(/^req_[0-9a-f]{32}$/);
      expect(response.headers.get("x-request-id")).toBe(id);
      ids.add(id).add(CHOSEN);
    }
    expect(ids.size).toBe(6);
  });

  test("in errors, before and behind authentication, and of unknown paths", async () => {
    const responses = [
      await send(...chosen),
      await sendRaw(gateway, { path: "/v1/none", headers: chosen }),
      await sendRaw(gateway, { method: "DELETE", headers: chosen }),
      await send(authorization(`Bearer ${gateway.managementKey}`), ...chosen),
    ];
    const ids = new Set<string>();
    for (const response of responses) {
      const { request_id } = await readEnvelope(response);
      expect(request_id).not.toBe(CHOSEN);
      ids.add(request_id);
    }
    expect(ids.size).toBe(responses.length);
  });
});

test("no secret is in any log line", async () => {
  const text = gateway.logLines.join("");
  expect(text).not.toContain(gateway.secretKey);
  expect(text).not.toContain(gateway.managementKey);
});

test("the books are closed afterwards", () => expectBooksClosed(gateway));
