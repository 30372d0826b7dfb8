import { expect, test } from "bun:test";
import fc from "fast-check";
import { Check } from "typebox/schema";
import { exampleOf } from "../../src/sandbox/schema-example.ts";

/** Typebox's own validator is the judge, so that generator and check cannot be wrong together. */
function expectExample(schema: unknown): unknown {
  const example = exampleOf(schema);
  if (!Check(schema as object, example)) {
    throw new Error(`${JSON.stringify(example)} does not satisfy ${JSON.stringify(schema)}`);
  }
  expect(JSON.parse(JSON.stringify(example))).toEqual(example);
  return example;
}

const bounds = (min: string, max: string, highest: number) =>
  fc.tuple(fc.option(fc.nat(highest)), fc.option(fc.nat(highest))).map(([a, b]) => ({
    ...(a === null ? {} : { [min]: a }),
    ...(b === null ? {} : { [max]: (a ?? 0) + b }),
  }));

const stringSchema = fc.oneof(
  bounds("minLength", "maxLength", 40).map((keywords) => ({ type: "string", ...keywords })),
  fc
    .constantFrom("date-time", "date", "time", "email", "uuid", "uri", "ipv4", "ipv6", "hostname")
    .map((format) => ({ type: "string", format })),
  fc
    .constantFrom(
      "^[a-z]+$",
      "^\\d{3}-\\d{4}$",
      "^(foo|bar)?baz{2,3}$",
      "^[^a-z\\s]{2}\\w+\\.txt$",
      "^\\p{Lu}\\p{L}*$",
      "(?<y>\\d{4})-\\k",
      "^#([0-9a-f]{3}){1,2}$",
      "^(?:[A-Z]{2}|x)(?=\\d)\\d$",
      "^(a)(b)\\1\\2$",
    )
    .filter((pattern) => !pattern.includes("\\k"))
    .map((pattern) => ({ type: "string", pattern })),
);

const numberSchema = fc
  .record({
    type: fc.constantFrom("integer", "number"),
    low: fc.option(fc.integer({ min: -1_000, max: 1_000 })),
    size: fc.option(fc.nat(500)),
    isExclusive: fc.boolean(),
    multipleOf: fc.option(fc.constantFrom(1, 2, 3, 5, 7, 10)),
  })
  .map(({ type, low, size, isExclusive, multipleOf }) => {
    const step = multipleOf ?? 1;
    return {
      type,
      ...(low === null ? {} : { [isExclusive ? "exclusiveMinimum" : "minimum"]: low }),
      // Wide enough that a multiple lies between the bounds.
      ...(size === null
        ? {}
        : { [isExclusive ? "exclusiveMaximum" : "maximum"]: (low ?? 0) + size + 2 * step }),
      ...(multipleOf === null ? {} : { multipleOf }),
    };
  });

/** As a schema arrives over HTTP: without -0. */
const json = fc.jsonValue({ maxDepth: 1 }).map((value) => JSON.parse(JSON.stringify(value)));

const leaf: fc.Arbitrary<unknown> = fc.oneof(
  stringSchema,
  numberSchema,
  fc.constantFrom(true, {}, { type: "boolean" }, { type: "null" }, { type: ["string", "null"] }),
  json.map((value) => ({ const: value })),
  fc.array(json, { minLength: 1, maxLength: 4 }).map((values) => ({
    enum: values,
  })),
  fc.constantFrom({ $ref: "#/$defs/point" }, { $ref: "#/$defs/node" }),
);

const key = fc.constantFrom("a", "b", "c", "a/b", "é");

const { schema: anySchema } = fc.letrec<{ schema: unknown }>((tie) => ({
  schema: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    leaf,
    fc
      .record({
        properties: fc.dictionary(key, tie("schema"), { maxKeys: 4, noNullPrototype: true }),
        isClosed: fc.boolean(),
        requiresAll: fc.boolean(),
        minProperties: fc.option(fc.nat(3)),
      })
      .map(({ properties, isClosed, requiresAll, minProperties }) => ({
        type: "object",
        properties,
        required: requiresAll ? Object.keys(properties) : Object.keys(properties).slice(0, 1),
        ...(isClosed ? { additionalProperties: false } : {}),
        ...(minProperties === null || isClosed ? {} : { minProperties }),
      })),
    fc
      .tuple(tie("schema"), bounds("minItems", "maxItems", 4))
      .map(([items, keywords]) => ({ type: "array", items, ...keywords })),
    fc
      .array(tie("schema"), { minLength: 1, maxLength: 3 })
      .map((prefixItems) => ({ type: "array", prefixItems, minItems: prefixItems.length })),
    fc.array(tie("schema"), { minLength: 1, maxLength: 3 }).map((anyOf) => ({ anyOf })),
    tie("schema").map((schema) => ({ allOf: [schema, {}] })),
  ),
}));

const DEFS = {
  point: {
    type: "object",
    properties: { x: { type: "number" }, y: { type: "number" } },
    required: ["x", "y"],
    additionalProperties: false,
  },
  node: {
    type: "object",
    properties: {
      value: { type: "integer" },
      next: { anyOf: [{ $ref: "#/$defs/node" }, { type: "null" }] },
      children: { type: "array", items: { $ref: "#/$defs/node" } },
    },
    required: ["value", "next"],
  },
};

test("an example satisfies its schema, whatever the schema is made of", () => {
  fc.assert(
    fc.property(anySchema, (schema) => {
      const root = {
        type: "object",
        properties: { value: schema },
        required: ["value"],
        $defs: DEFS,
      };
      const example = expectExample(root);
      expect(exampleOf(root)).toEqual(example as never);
    }),
    { numRuns: 1_500 },
  );
}, 60_000);

test("both halves of a conjunction are met", () => {
  const shape = fc
    .tuple(bounds("minLength", "maxLength", 20), bounds("minLength", "maxLength", 20))
    .filter(([a, b]) => {
      const low = Math.max(Number(a.minLength ?? 0), Number(b.minLength ?? 0));
      return low <= Math.min(Number(a.maxLength ?? 99), Number(b.maxLength ?? 99));
    })
    .map(([a, b]) => ({
      allOf: [
        { type: "string", ...a },
        { type: ["string", "null"], ...b },
      ],
    }));
  fc.assert(fc.property(shape, (schema) => void expectExample(schema)));
});

test.each<[string, unknown]>([
  ["oneOf of types", { oneOf: [{ type: "string" }, { type: "integer" }] }],
  [
    "oneOf with a discriminator",
    {
      oneOf: ["cat", "dog"].map((kind) => ({
        type: "object",
        properties: { kind: { const: kind }, name: { type: "string" } },
        required: ["kind", "name"],
      })),
    },
  ],
  ["anyOf of required keys", { type: "object", anyOf: [{ required: ["a"] }, { required: ["b"] }] }],
  ["two groups of alternatives", { anyOf: [{ minimum: 3 }], oneOf: [{ type: "integer" }] }],
  ["not a key", { type: "object", properties: { a: {} }, not: { required: ["b"] } }],
  ["unique items", { type: "array", items: { type: "integer" }, minItems: 5, uniqueItems: true }],
  ["unique strings", { items: { type: "string" }, minItems: 4, uniqueItems: true }],
  ["unique from an enum", { items: { enum: ["a", "b", "c"] }, minItems: 3, uniqueItems: true }],
  [
    "unique objects",
    { items: { properties: { a: { type: "string" } } }, minItems: 3, uniqueItems: true },
  ],
  ["a tuple of draft 7", { type: "array", items: [{ const: 1 }, { const: 2 }], minItems: 2 }],
  ["a narrow range", { type: "number", exclusiveMinimum: 0, exclusiveMaximum: 0.01 }],
  ["a fraction as divisor", { type: "number", multipleOf: 0.01, minimum: 0.07, maximum: 0.08 }],
  ["whole multiples of a fraction", { type: "integer", multipleOf: 2.5, minimum: 1 }],
  ["a negative range", { type: "integer", maximum: -10, multipleOf: 7 }],
  ["a large bound", { type: "integer", minimum: 9_007_199_254_740_000 }],
  ["properties by number", { type: "object", minProperties: 3, maxProperties: 3 }],
  ["values of properties", { minProperties: 1, additionalProperties: { type: "integer" } }],
  [
    "a limit of properties",
    { properties: { a: {}, b: {}, c: {} }, required: ["c"], maxProperties: 2 },
  ],
  ["a default that is wrong", { type: "integer", minimum: 3, default: 1 }],
  ["a pattern with a length", { type: "string", pattern: "^[a-f]+$", minLength: 12 }],
])("the example of a schema with %s satisfies it", (_what, schema) => {
  expectExample(schema);
});

test.each<[string, unknown, unknown]>([
  ["only null", { type: "null" }, null],
  ["null or more", { type: ["null", "integer"] }, 1],
  ["an enum in a conjunction", { allOf: [{ enum: ["a", "b"] }, { enum: ["b", "c"] }] }, "b"],
  [
    "a closed conjunction",
    { allOf: [{ properties: { a: {} }, additionalProperties: false }, { properties: { b: {} } }] },
    { a: "example" },
  ],
])("the example of a schema with %s is the stated one", (_what, schema, expected) => {
  expect(expectExample(schema)).toEqual(expected as never);
});

test.each([
  [{ type: "string", not: { const: "example" } }, "example"],
  [{ oneOf: [{ type: "number" }, { type: "integer" }] }, 1],
  [{ type: "integer", minimum: 1, exclusiveMinimum: true }, 1],
  [{ type: "array", items: { type: "integer" }, contains: { minimum: 7 } }, [1]],
])("a keyword outside the supported ones is ignored: %j", (schema, expected) => {
  expect(exampleOf(schema)).toEqual(expected as never);
});

test("references point anywhere in the schema, escapes included", () => {
  const schema = {
    type: "object",
    required: ["a", "b", "c"],
    properties: {
      a: { $ref: "#/$defs/with~1slash" },
      b: { $ref: "#/properties/a" },
      c: { $ref: "#/definitions/odd%20name", maximum: 4 },
    },
    $defs: { "with/slash": { const: "found" } },
    definitions: { "odd name": { type: "integer", minimum: 4 } },
  };
  expect(exampleOf(schema)).toEqual({ a: "found", b: "found", c: 4 });
});

test("a recursive schema shows itself once more and ends", () => {
  const root = { $ref: "#/$defs/node", $defs: DEFS };
  expect(expectExample(root)).toEqual({
    value: 1,
    next: { value: 1, next: null, children: [] },
    children: [{ value: 1, next: null, children: [] }],
  });
});

test("a common base in several conjuncts is no recursion", () => {
  const schema = {
    allOf: [{ $ref: "#/$defs/a" }, { $ref: "#/$defs/b" }, { $ref: "#/$defs/base" }],
    $defs: {
      a: { allOf: [{ $ref: "#/$defs/base" }], properties: { a: { $ref: "#/$defs/base" } } },
      b: { allOf: [{ $ref: "#/$defs/base" }], required: ["a", "id"] },
      base: { type: "object", properties: { id: { type: "integer" } }, required: ["id"] },
    },
  };
  expect(expectExample(schema)).toEqual({ id: 1, a: { id: 1 } });
});

test("where nothing fits, an object schema gets an empty object and any other null", () => {
  expect(exampleOf({ type: "object", properties: { a: false }, required: ["a"] })).toEqual({});
  expect(exampleOf(false)).toBeNull();
});

test("a key such as __proto__ is an own key of the example", () => {
  const schema = JSON.parse(
    '{"properties": {"__proto__": {"const": 1}}, "required": ["__proto__"]}',
  );
  expect(JSON.stringify(exampleOf(schema))).toBe('{"__proto__":1}');
});
