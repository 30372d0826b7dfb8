import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { fitted, healedJson } from "../../src/inference/endpoints/chat-completions/healed-json.ts";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { expectError } from "../support/error-envelope.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway();
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

const SCHEMA = {
  type: "object",
  properties: {
    name: { type: "string" },
    age: { type: "integer" },
    tags: { type: "array", items: { type: "string" } },
    member: { type: ["boolean", "null"] },
  },
  required: ["name"],
  additionalProperties: false,
};
const FORMAT = { type: "json_schema", json_schema: { name: "person", schema: SCHEMA } };
const HEALING = { plugins: [{ id: "response-healing" }], response_format: FORMAT };
const PADDING = " ".repeat(262_145);

interface Answer {
  readonly choices: readonly {
    readonly message: { readonly content: string | null };
    readonly healed?: boolean;
  }[];
}

async function answerTo(said: string, body: Record<string, unknown>, padding = "") {
  const slug = gateway.modelThat({ do: "complete", content: said });
  const text = JSON.stringify({
    model: `test/${slug}`,
    messages: [{ role: "user", content: "a" }],
    ...body,
  });
  const response = await gateway.request("POST", "/v1/chat/completions", text + padding);
  expect(response.status).toBe(200);
  return (await response.json()) as Answer;
}

test("an answer that is not the JSON that was asked for is healed, and says so", async () => {
  const said = 'Here it is:\n```json\n{"name": "Ada", age: "36", tags: "math", "extra": 1,}\n```';
  for (const padding of ["", PADDING]) {
    const { choices } = await answerTo(said, HEALING, padding);
    expect(choices[0]!.healed).toBe(true);
    expect(JSON.parse(choices[0]!.message.content!)).toEqual({
      name: "Ada",
      age: 36,
      tags: ["math"],
    });
  }
});

test("what is right stays as it is, and so does all without the plugin or without a wish for JSON", async () => {
  const right = '{ "name": "Ada" }';
  const broken = '{"name": "Ada"';
  for (const [said, body] of [
    [right, HEALING],
    [broken, { response_format: FORMAT }],
    [broken, { ...HEALING, plugins: [{ id: "response-healing", enabled: false }] }],
    [broken, { plugins: HEALING.plugins }],
  ] as const) {
    const { choices } = await answerTo(said, body);
    expect(choices[0]!.message.content).toBe(said);
    expect(choices[0]).not.toHaveProperty("healed");
  }
});

test("what holds no JSON stays, and says that it is not healed", async () => {
  const { choices } = await answerTo("I cannot do that.", HEALING);
  expect(choices[0]).toMatchObject({ message: { content: "I cannot do that." }, healed: false });
});

test("a stream with the plugin, and what the plugin does not have, are 400", async () => {
  const slug = gateway.modelThat({ do: "complete" });
  for (const [body, param] of [
    [{ ...HEALING, stream: true }, "plugins.0.id"],
    [{ ...HEALING, plugins: [{ id: "response-healing", level: 9 }] }, "plugins.0.level"],
    [{ plugins: [{ id: "mind-reading" }] }, "plugins.0.id"],
  ] as const) {
    const response = await gateway.chat(slug, body);
    const { error } = await expectError(response, 400, "unsupported_parameter");
    expect(error.param).toBe(param);
  }
  expect(gateway.upstream.served.filter(({ requestBody }) => requestBody?.model === slug)).toEqual(
    [],
  );
});

test("a schema whose list of types is absurdly long is not read for each value", () => {
  let reads = 0;
  const type = new Proxy(
    Array.from({ length: 1_000 }, (_, at) => `type${at}`),
    {
      get(target, member, receiver) {
        if (typeof member === "string" && /^\d+$/.test(member)) reads++;
        return Reflect.get(target, member, receiver);
      },
    },
  );
  const values = Array.from({ length: 1_000 }, () => 1);
  expect(fitted(values, { type: "array", items: { type } }, 0)).toEqual(values);
  expect(reads).toBe(0);
});

describe("the JSON in a text", () => {
  const jsonIn = (text: string, schema?: unknown) => healedJson.read(text, { schema }).json;

  test("is found and repaired", () => {
    for (const [text, json] of [
      ['{"a": 1', '{"a":1}'],
      ["{'a': 'b',}", '{"a":"b"}'],
      ['Sure! {"a": [1, 2}', '{"a":[1,2]}'],
      ['{"a": "line\nbreak"}', '{"a":"line\\nbreak"}'],
      ["```\n[1, 2, 3]\n```\nDone.", "[1,2,3]"],
      ['// comment\n{"a": None, "b": True}', '{"a":null,"b":true}'],
      ["no JSON at all", undefined],
      ["", undefined],
    ] as const) {
      expect({ text, json: jsonIn(text) }).toEqual({ text, json });
    }
  });

  test("gets the types of its schema where it is plain what was meant", () => {
    expect(jsonIn('[{"name": 7, "age": 3.5, "member": "none"}]', SCHEMA)).toBe(
      '{"name":"7","age":3.5,"member":null}',
    );
    const schema = { type: "array", items: { type: "number" } };
    expect(jsonIn('{"values": 1}', schema)).toBe('[{"values":1}]');
    expect(jsonIn('["1.5", "x"]', schema)).toBe('[1.5,"x"]');
    expect(jsonIn('{"__proto__": {"a": 1}}', { properties: {} })).toBe('{"__proto__":{"a":1}}');
  });

  test("hostile texts come to an end", () => {
    for (const text of ["[".repeat(65_536), '{"a":'.repeat(2_000), '"a" + '.repeat(5_000)]) {
      expect(typeof jsonIn(text)).toMatch(/string|undefined/);
    }
  });
});
