import { describe, expect, test } from "bun:test";
import { Validator } from "@seriousme/openapi-schema-validator";
import Type from "typebox";
import { ERROR_TABLE } from "../../src/http/error-response.ts";
import { openApiDocument } from "../../src/http/openapi.ts";
import { describeSchema, NamedSchemas } from "../../src/http/openapi-schemas.ts";
import type { RouteDefinition } from "../../src/http/route.ts";
import { SAMPLE_ROUTES } from "./description-samples.ts";

interface Operation {
  operationId: string;
  description: string;
  security: Record<string, string[]>[];
  parameters?: { name: string; in: string; required: boolean; schema: object }[];
  requestBody?: { content: Record<string, { schema: { $ref?: string }; example?: unknown }> };
  responses: Record<string, { $ref?: string; description?: string; content?: object }>;
}

interface Document {
  [member: string]: unknown;
  info: { version: string };
  paths: Record<string, Record<string, Operation>>;
  components: Record<string, Record<string, unknown>>;
}

function documentOf(routes: readonly RouteDefinition[]): Document {
  const examples = { "chat.completions.create": { request: { model: "openai/gpt-4o-mini" } } };
  return JSON.parse(JSON.stringify(openApiDocument(routes, { version: "1.2.3", examples })));
}

const document = documentOf(SAMPLE_ROUTES);
const chat = document.paths["/v1/chat/completions"]!.post!;
const keys = document.paths["/v1/keys"]!;

describe("the OpenAPI document", () => {
  test("is valid OpenAPI 3.1", async () => {
    const result = await new Validator().validate(structuredClone(document));
    expect(result.errors).toBeUndefined();
    expect(result.valid).toBe(true);
    expect(document.info.version).toBe("1.2.3");
  });

  test("refers only to what it has", () => {
    const references = JSON.stringify(document).matchAll(/"\$ref":"#\/components\/(\w+)\/(\w+)"/g);
    const seen = [...references].map(([, kind, name]) => {
      expect(document.components[kind!]).toHaveProperty(name!);
      return name;
    });
    expect(seen).toContain("Error429");
    expect(seen).toContain("RequestId");
  });

  test("names both headers of a key", () => {
    expect(document.components.securitySchemes).toMatchObject({
      apiKey: { type: "http", scheme: "bearer" },
      apiKeyHeader: { type: "apiKey", in: "header", name: "x-api-key" },
    });
    expect(document.security).toEqual([{ apiKey: [] }, { apiKeyHeader: [] }]);
  });

  test("has every route, under ids of their own", () => {
    expect(Object.keys(document.paths)).toEqual([
      "/v1/chat/completions",
      "/v1/models",
      "/v1/models/{id}",
      "/v1/keys",
      "/v1/keys/{id}",
    ]);
    const ids = Object.values(document.paths).flatMap((path) =>
      Object.values(path).map((operation) => operation.operationId),
    );
    expect(ids).toContain("keys.delete");
    expect(new Set(ids).size).toBe(SAMPLE_ROUTES.length);
  });

  test("describes one of two routes that differ only in the names of parameters", async () => {
    const [, , wildcard] = SAMPLE_ROUTES;
    const named = { ...wildcard!, path: "/v1/models/:model_id", summary: "The same" };
    const both = documentOf([...SAMPLE_ROUTES, named]);
    expect(Object.keys(both.paths)).toEqual(Object.keys(document.paths));
    expect((await new Validator().validate(structuredClone(both))).valid).toBe(true);
  });

  test("names the parameters of paths and queries, with what is required", () => {
    const path = document.paths["/v1/keys/{id}"]!.delete!.parameters;
    expect(path).toEqual([{ name: "id", in: "path", required: true, schema: { type: "string" } }]);
    const query = keys.get!.parameters!.map(({ name, in: place, required }) => [
      name,
      place,
      required,
    ]);
    expect(query).toEqual([
      ["active", "query", false],
      ["limit", "query", false],
      ["sort", "query", true],
    ]);
    expect(keys.get!.parameters![1]!.schema).toMatchObject({ maximum: 200, default: 50 });
  });

  test("tells which key and scope a route needs", () => {
    expect(chat.security).toEqual([
      { apiKey: ["chat:completions"] },
      { apiKeyHeader: ["chat:completions"] },
    ]);
    expect(chat.description).toBe("Needs a secret key with the scope `chat:completions`.");
    expect(keys.post!.description).toContain("a management key, or a secret key");
    const open = { ...SAMPLE_ROUTES[1]!, access: { kind: "public" } } as const;
    expect(documentOf([open]).paths["/v1/models"]!.get!.security).toEqual([]);
  });

  test("says whether unknown members are refused", () => {
    const body = (operation: Operation) => operation.requestBody!.content["application/json"]!;
    const schemaOf = (operation: Operation) =>
      document.components.schemas![body(operation).schema.$ref!.replace(/.*\//, "")];
    expect(schemaOf(keys.post!)).toHaveProperty("additionalProperties", false);
    expect(schemaOf(chat)).toHaveProperty("additionalProperties", true);
    expect(body(chat).example).toHaveProperty("model");
    expect(body(keys.post!)).not.toHaveProperty("example");
  });
});

describe("the errors of a route", () => {
  const statuses = (operation: Operation) => Object.keys(operation.responses).join(" ");

  test("are those that its access, body, query and path can lead to", () => {
    expect(statuses(chat)).toBe("200 400 401 402 403 404 408 409 413 415 429 500 502 503");
    expect(statuses(keys.post!)).toBe("201 400 401 403 409 413 415 500 503");
    expect(statuses(keys.get!)).toBe("200 400 401 403 500 503");
    expect(statuses(document.paths["/v1/keys/{id}"]!.delete!)).toBe("200 400 401 403 404 500 503");
    const open = { ...SAMPLE_ROUTES[2]!, access: { kind: "public" } } as const;
    expect(statuses(documentOf([open]).paths["/v1/models/{id}"]!.get!)).toBe("200 400 404 500");
  });

  test("keep a route's own words", () => {
    expect(keys.post!.responses[409]!.description).toBe("The organization has a key of this name");
    expect(JSON.stringify(keys.post!.responses[409])).toContain("#/components/schemas/Error");
  });

  test("name every code that the gateway has, each with its status", () => {
    const responses = document.components.responses as Record<string, { description: string }>;
    for (const [code, { status }] of Object.entries(ERROR_TABLE)) {
      // Only logs see 499, and an unknown method or protocol is no operation.
      if (status === 499 || status === 405 || status === 426) continue;
      // Only routes of contents have these, in their own words.
      if (status === 412 || status === 416) continue;
      expect(responses[`Error${status}`]!.description).toContain(`\`${code}\``);
    }
  });
});

describe("a schema", () => {
  test("of constants is described as an enumeration", () => {
    const schema = Type.Union([Type.Literal("a"), Type.Literal("b")]);
    expect(describeSchema(schema)).toEqual({ type: "string", enum: ["a", "b"] });
    const mixed = Type.Union([Type.Literal("a"), Type.Literal("b"), Type.Array(Type.String())]);
    expect(describeSchema(mixed)).toEqual({
      anyOf: [
        { type: "string", enum: ["a", "b"] },
        { type: "array", items: { type: "string" } },
      ],
    });
  });

  test("that allows null is described with two types", () => {
    const schema = Type.Union([Type.Integer({ minimum: 1 }), Type.Null()], { description: "d" });
    expect(describeSchema(schema)).toEqual({
      type: ["integer", "null"],
      minimum: 1,
      description: "d",
    });
    const choice = Type.Union([Type.Literal("a"), Type.Literal("b"), Type.Null()]);
    expect(describeSchema(choice)).toEqual({ type: ["string", "null"], enum: ["a", "b", null] });
  });

  test("that allows null or constants by nested unions is described flatly", () => {
    const stop = Type.Union([Type.Union([Type.String(), Type.Array(Type.String())]), Type.Null()]);
    expect(describeSchema(stop)).toEqual({
      anyOf: [{ type: "string" }, { type: "array", items: { type: "string" } }, { type: "null" }],
    });
    const route = Type.Union([Type.Literal("fallback"), Type.Null()]);
    expect(describeSchema(route)).toEqual({ type: ["string", "null"], enum: ["fallback", null] });
    expect(describeSchema(Type.Enum(["a", "b"]))).toEqual({ type: "string", enum: ["a", "b"] });
  });

  test("does not speak of the limits of safe integers, nor of no members", () => {
    const seed = { minimum: Number.MIN_SAFE_INTEGER, maximum: Number.MAX_SAFE_INTEGER };
    expect(describeSchema(Type.Integer(seed))).toEqual({ type: "integer" });
    const open = { type: "object", additionalProperties: true };
    expect(describeSchema(Type.Object({}))).toEqual(open as never);
    const bounded = { type: "integer", minimum: 0, maximum: 5 };
    expect(describeSchema(Type.Integer({ minimum: 0, maximum: 5 }))).toEqual(bounded as never);
  });

  test("of a record is described with additional properties", () => {
    expect(describeSchema(Type.Record(Type.String(), Type.Number()))).toEqual({
      type: "object",
      additionalProperties: { type: "number" },
    });
  });

  test("keeps members that are named like keywords, and values that look like schemas", () => {
    const inner = { anyOf: [{ type: "string", const: "a" }, { type: "null" }] };
    const schema = Type.Object(
      { anyOf: Type.String(), properties: Type.Number(), const: Type.Null() },
      { default: inner, examples: [inner] },
    );
    const described = describeSchema(schema);
    expect(described.default).toEqual(inner);
    expect(described.examples).toEqual([inner]);
    expect(described.properties).toEqual({
      anyOf: { type: "string" },
      properties: { type: "number" },
      const: { type: "null" },
    });
  });
});

describe("named schemas", () => {
  const Tool = Type.Object({ name: Type.String() }, { title: "Tool" });

  test("replace each use of a schema with a title, also if it can be null", () => {
    const schemas = new NamedSchemas();
    const body = Type.Object({ tool: Type.Union([Tool, Type.Null()]), tools: Type.Array(Tool) });
    const reference = { $ref: "#/components/schemas/Tool" };
    expect(schemas.describe(body).properties).toEqual({
      tool: { anyOf: [reference, { type: "null" }] },
      tools: { type: "array", items: reference },
    });
    expect(Object.keys(schemas.byName())).toEqual(["Tool"]);
    expect(schemas.byName().Tool).not.toHaveProperty("title");
  });

  test("do not take a member called title for a name", () => {
    const schemas = new NamedSchemas();
    schemas.describe(Type.Array(Type.Object({ title: Type.String() })));
    expect(schemas.byName()).toEqual({});
  });

  test("name the options of a union by their types", () => {
    const schemas = new NamedSchemas();
    const option = (type: string) => Type.Object({ type: Type.Literal(type), tool: Tool });
    const choice = Type.Union([option("custom"), option("file_search")]);
    schemas.name(schemas.describe(choice), "Choice");
    expect(Object.keys(schemas.byName())).toEqual([
      "Choice",
      "ChoiceCustom",
      "ChoiceFileSearch",
      "Tool",
    ]);
  });

  test("reject a second schema with a name that is in use", () => {
    const schemas = new NamedSchemas();
    schemas.name(describeSchema(Tool), "Other");
    schemas.name(describeSchema(Tool), "Other");
    expect(() => schemas.name({ type: "object", title: "Tool" }, "Other")).toThrow("Tool");
  });
});
