import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type ChatGateway, chatBody, startChatGateway } from "../support/chat-gateway.ts";
import { expectError } from "../support/error-envelope.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";

let gateway: ChatGateway;
let slug: string;
beforeAll(async () => {
  // Bodies for this type of provider are taken apart and put together anew.
  gateway = await startChatGateway({ primaryType: "openai" });
  slug = gateway.modelThat({ do: "complete" });
});
afterAll(() => gateway.stop());

const post = (text: string) => gateway.request("POST", "/v1/chat/completions", text);
/** A valid request with `text` as further members. */
const withMembers = (text: string) => `${JSON.stringify(chatBody(slug)).slice(0, -1)},${text}}`;

/** What reached the provider of a request that was accepted. */
async function received(text: string): Promise<Record<string, unknown>> {
  const response = await post(text);
  expect(response.status).toBe(200);
  return gateway.upstream.served.at(-1)!.requestBody!;
}

describe("NUL and lone surrogates are refused wherever they stand, written as escapes", () => {
  const BAD = ["\\u0000", "a\\u0000b", "\\ud800", "\\udfff", "\\udc00\\ud800", "a\\ud83db"];
  test.each(BAD)("%s", async (written) => {
    const places = [
      withMembers(`"user":"${written}"`),
      withMembers(`"${written}":1`),
      withMembers(`"extra":{"deep":[["${written}"]]}`),
      JSON.stringify(chatBody(slug)).replace("hello", written),
      JSON.stringify(chatBody(slug)).replace(`test/${slug}`, written),
      withMembers(`"metadata":{"idempotency_key":"${written}"}`),
    ];
    for (const text of places) await expectError(await post(text), 400, "invalid_body");
  });

  test("pairs, other control characters and text that only looks like an escape are not", async () => {
    const text = "\\ud83d\\ude00 \\u0001\\u001f \\\\u0000 \\\\ud800 \\uffff \\u2028 \\u200f";
    const body = await received(withMembers(`"user":"${text}"`));
    expect(body.user).toBe("\u{1f600} \u0001\u001f \\u0000 \\ud800 \uffff \u2028 \u200f");
  });
});

describe("of a key that stands twice the last counts", () => {
  test("also for what decides money and route", async () => {
    const text = `{"model":"test/none","max_tokens":4000,${JSON.stringify(chatBody(slug)).slice(1, -1)},"max_tokens":7,"max_tokens":8}`;
    const body = await received(text);
    expect(body).toMatchObject({ model: slug, max_tokens: 8 });
  });

  test("so that a bad last one is refused although the first was good", async () => {
    const text = withMembers('"temperature":1,"temperature":"1"');
    await expectError(await post(text), 400, "invalid_body");
  });
});

describe("names of an object's own machinery are names like any other", () => {
  test("__proto__ gives the request nothing that it does not say itself", async () => {
    const planted = '{"n":50,"max_tokens":99999,"stream":true,"user":"planted","tools":[]}';
    const body = await received(withMembers(`"top_k":1,"__proto__":${planted}`));
    expect(Object.keys(body).sort()).toEqual(["messages", "model"]);
    for (const value of ["null", "5", '"text"', "[1]", '{"__proto__":{"n":50}}']) {
      const other = await received(withMembers(`"top_k":1,"__proto__":${value}`));
      expect(Object.keys(other).sort()).toEqual(["messages", "model"]);
    }
  });

  test("__proto__ within messages, tools and metadata changes nothing of them", async () => {
    const text = `{"model":"test/${slug}","top_k":1,"messages":[{"role":"user","content":"a","__proto__":{"role":"system"}}],
      "metadata":{"__proto__":{"idempotency_key":"planted"}},"provider":{"__proto__":{"order":["x"]}}}`;
    const first = await post(text);
    // A member of provider that is not known is refused, whatever its name.
    await expectError(first, 400, "unsupported_parameter");
    const body = await received(text.replace(/,"provider".*/, "}"));
    expect((body.messages as { role: string }[])[0]!.role).toBe("user");
    const again = await post(text.replace(/,"provider".*/, "}"));
    expect(again.headers.get("x-gateway-idempotent-replay")).toBeNull();
  });

  test.each(["constructor", "prototype", "toString", "hasOwnProperty", "valueOf"])(
    "%s is passed on like any unknown field",
    async (name) => {
      const body = await received(withMembers(`"${name}":{"a":1}`));
      expect(Object.getOwnPropertyDescriptor(body, name)?.value).toEqual({ a: 1 });
    },
  );

  test("nothing of it reaches other requests", async () => {
    await post(
      withMembers('"constructor":{"prototype":{"polluted":1}},"__proto__":{"polluted":1}'),
    );
    expect(({} as { polluted?: number }).polluted).toBeUndefined();
  });
});

describe("a model name of odd characters is a model that does not exist, and stays out of the headers", () => {
  const NAMES = [
    "test/x\r\nX-Injected: yes",
    "test/x\nX-Injected: yes",
    "test/x\u0085\u2028",
    "\u{1f600}",
    "test/ü",
    " ",
    "/",
    "//",
    "test/",
    "..",
    "../../etc/passwd",
    "test/%2e%2e",
    '"><script>',
    "'; DROP TABLE api_keys; --",
    "__proto__",
    "constructor",
    "toString",
    "x".repeat(100_000),
  ];
  test.each(NAMES.map((name) => [name.slice(0, 40), name]))("%j", async (_, name) => {
    for (const wish of [{ model: name }, { models: [name] }]) {
      const response = await gateway.chat(slug, wish);
      expect(response.headers.get("x-injected")).toBeNull();
      expect([...response.headers.values()].join()).not.toMatch(/Injected|script|DROP/);
      const { error } = await expectError(response, 404, "model_not_found");
      expect(error.param).toBe(Object.keys(wish)[0]!);
      expect(error.message.length).toBeLessThan(1_000);
      expect(error.message).not.toMatch(/[\r\n]/);
    }
  });

  test("neither do the log's lines break at it", async () => {
    const response = await gateway.chat("any", { model: 'x\r\n{"msg":"forged"}' });
    const { request_id } = await expectError(response, 404, "model_not_found");
    const lines = gateway.logLines
      .join("")
      .split("\n")
      .filter((line) => line !== "");
    for (const line of lines) expect(JSON.parse(line).msg).not.toBe("forged");
    expect(lines.some((line) => line.includes(request_id))).toBeTrue();
  });
});

test("the books are closed afterwards", () => expectBooksClosed(gateway));
