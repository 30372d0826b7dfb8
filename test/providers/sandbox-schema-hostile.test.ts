import { expect, test } from "bun:test";
import { exampleOf } from "../../src/sandbox/schema-example.ts";

const laughs = (keyword: string) =>
  Object.fromEntries(
    Array.from({ length: 40 }, (_, level) => [
      `l${level}`,
      { [keyword]: [1, 2].map(() => ({ $ref: `#/$defs/l${level + 1}` })) },
    ]),
  );
const wide = {
  type: "object",
  properties: Object.fromEntries(Array.from({ length: 8 }, (_, i) => [`p${i}`, { $ref: "#" }])),
};

const LONG = "x".repeat(1_000_000);

const objectEnum = () => ({ enum: Array.from({ length: 256 }, (_, i) => ({ value: i })) });

test.each<[string, unknown]>([
  ["impossible", false],
  ["a reference to itself", { $ref: "#" }],
  ["a reference to nothing", { $ref: "#/$defs/none" }],
  ["a required infinity", { type: "object", properties: { a: { $ref: "#" } }, required: ["a"] }],
  ["references that double", { $ref: "#/$defs/l0", $defs: laughs("allOf") }],
  ["alternatives that double", { $ref: "#/$defs/l0", $defs: laughs("anyOf") }],
  ["exclusive alternatives that double", { $ref: "#/$defs/l0", $defs: laughs("oneOf") }],
  ["wide recursion", wide],
  ["wide required recursion", { ...wide, required: Object.keys(wide.properties) }],
  ["many alternatives", { oneOf: Array.from({ length: 50_000 }, (_, i) => ({ minimum: i })) }],
  ["a huge array", { type: "array", items: wide, minItems: 1e9 }],
  [
    "huge unique arrays",
    {
      items: { items: { type: "boolean" }, minItems: 1e6, uniqueItems: true },
      minItems: 1e6,
      uniqueItems: true,
    },
  ],
  ["a huge string", { type: "string", minLength: 1e12 }],
  [
    "huge strings in huge arrays",
    {
      minItems: 1_000,
      items: { minItems: 18, items: { type: "string", minLength: 10_000 } },
    },
  ],
  ["a long constant in a huge array", { minItems: 1_000, items: { const: LONG } }],
  ["a long value in a huge array", { minItems: 1_000, items: { enum: [LONG] } }],
  ["a long key in a huge array", { minItems: 1_000, items: { required: [LONG] } }],
  [
    "a large schema that is referred to often",
    {
      minItems: 1_000,
      items: { $ref: "#/$defs/large", properties: { [LONG]: true } },
      $defs: {
        large: {
          properties: Object.fromEntries(Array.from({ length: 50_000 }, (_, i) => [i, {}])),
        },
      },
    },
  ],
  ["a huge repetition", { type: "string", pattern: "^(a{1000000000}){1000000000}$" }],
  [
    "nested repetition",
    { type: "string", pattern: "((((((a{999}){999}){999}){999}){999}){999}){999}" },
  ],
  ["an empty repetition", { type: "string", pattern: "^(){1000000000}$", minLength: 5 }],
  [
    "a pattern that backtracks",
    { type: "string", pattern: "^(a+)+$", enum: [`${"a".repeat(60)}!`] },
  ],
  ["a long enum", { enum: Array.from({ length: 100_000 }, (_, i) => i), not: { maximum: 99_999 } }],
  [
    "two long enums",
    { allOf: [0, 1].map((n) => ({ enum: Array.from({ length: 50_000 }, (_, i) => 2 * i + n) })) },
  ],
  ["a thousand keys", { required: Array.from({ length: 100_000 }, (_, i) => `k${i}`) }],
  ["many properties", { minProperties: 1e9 }],
  [
    "conjuncts that each add a key",
    {
      allOf: Array.from({ length: 6_000 }, (_, i) => ({
        required: [`k${i}`],
        properties: { [`k${i}`]: { type: "string" } },
      })),
    },
  ],
  ["conjuncts that repeat a long enum", { allOf: Array.from({ length: 2_000 }, objectEnum) }],
  [
    "wrong keywords",
    { type: 5, properties: [], required: "a", items: 7, minimum: "x", enum: {}, allOf: 3 },
  ],
  ["wrong branches", { anyOf: [], oneOf: [null, 5], not: "x", if: 1, $ref: 9 }],
  ["contradictions", { type: "string", minLength: 5, maxLength: 2 }],
  ["contradicting types", { allOf: [{ type: "string" }, { type: "object" }] }],
  ["not anything", { not: {} }],
])("a hostile schema ends quickly and in a bounded value: %s", (_what, schema) => {
  const startMs = performance.now();
  const json = JSON.stringify(exampleOf(schema));
  expect(performance.now() - startMs).toBeLessThan(1_500);
  expect(json.length).toBeLessThan(20_000_000);
});
