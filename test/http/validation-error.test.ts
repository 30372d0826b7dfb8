import { describe, expect, test } from "bun:test";
import { Type } from "typebox";
import { createKeyBody } from "../../src/accounts/keys/routes.ts";
import { createCheck, findValidationError } from "../../src/http/validate.ts";
import { chatCompletionBody } from "../../src/inference/endpoints/chat-completions/schema.ts";

const messages = [{ role: "user", content: "hi" }];

describe("the fault of a value is told with the way to it", () => {
  test.each<[string, unknown, string, string]>([
    ["the value itself", [], "", "must be object"],
    ["a field that is missing", {}, "messages", "is required"],
    ["a field of another type", { messages: 5 }, "messages", "must be array"],
    ["an empty list", { messages: [] }, "messages", "must not have fewer than 1 items"],
    ["an item", { messages: [messages[0], 5] }, "messages.1", "must be object"],
    ["a field of an item", { messages: [{ content: "x" }] }, "messages.0.role", "is required"],
    ["one of many types", { messages, stop: {} }, "stop", "must be string or array"],
    ["of the type that it has", { messages, stop: ["a", 5] }, "stop.1", "must be string"],
    [
      "of the kind that it names",
      { messages, response_format: { type: "json_schema" } },
      "response_format.json_schema",
      "is required",
    ],
    [
      "a kind that there is not",
      { messages, response_format: { type: "xml" } },
      "response_format.type",
      'must be one of "text", "json_object", "json_schema"',
    ],
    [
      "a word that there is not",
      { messages, tool_choice: "some" },
      "tool_choice",
      'must be one of "none", "auto", "required"',
    ],
    [
      "an object in the place of a word",
      { messages, tool_choice: { type: "function" } },
      "tool_choice.function",
      "is required",
    ],
    [
      "a kind of object that there is not, in the place of a word",
      { messages, tool_choice: { type: "tool" } },
      "tool_choice.type",
      'must be one of "function", "custom", "allowed_tools"',
    ],
    ["an optional field", { messages, temperature: 3 }, "temperature", "must be <= 2"],
    [
      "a name of a record",
      { messages, logit_bias: { a: 1, b: "x" } },
      "logit_bias.b",
      "must be number",
    ],
  ])("%s", (_what, value, path, message) => {
    expect(findValidationError(chatCompletionBody, value)).toEqual({
      path: path === "" ? [] : path.split("."),
      message,
    });
  });

  test.each<[string, unknown, string, string]>([
    ["a field nobody knows", { name: "a", nmae: "b" }, "nmae", "is not a known field"],
    [
      "too long a list",
      { name: "a", allowed_models: models(1_001) },
      "allowed_models",
      "must not have more than 1000 items",
    ],
    [
      "a value that is repeated",
      { name: "a", scopes: ["responses", "responses"] },
      "scopes",
      "must not have duplicate items",
    ],
  ])("%s", (_what, value, path, message) => {
    expect(findValidationError(createKeyBody, value)).toEqual({ path: path.split("."), message });
  });
});

test("a constant is told with the value that it must have", () => {
  const schema = Type.Object({ kind: Type.Literal("function") });
  expect(findValidationError(schema, { kind: "x" })).toEqual({
    path: ["kind"],
    message: 'must be "function"',
  });
});

test("a record's name that is none is told of the record", () => {
  const record = Type.Record(Type.String(), Type.String(), { propertyNames: { maxLength: 3 } });
  expect(findValidationError(Type.Object({ record }), { record: { abcd: "x" } })).toEqual({
    path: ["record"],
    message: "the names of its members must not have more than 3 characters",
  });
});

function models(count: number): string[] {
  return Array.from({ length: count }, (_, i) => `a/${i}`);
}

test("what lies behind the first fault is not looked at, however much it is", () => {
  const guarded = (items: unknown[]) => {
    Object.defineProperty(items, items.length, {
      enumerable: true,
      get() {
        throw new Error("looked at");
      },
    });
    return items;
  };
  const schema = Type.Object({
    first: Type.Array(Type.Object({ inner: Type.Array(Type.Integer()) })),
    second: Type.Optional(Type.Array(Type.Integer())),
  });
  const check = createCheck(schema, "invalid_body", "Request body");
  const value = {
    first: guarded([{ inner: [1] }, { inner: guarded([1, "2"]) }]),
    second: guarded([]),
  };
  expect(() => check(value)).toThrow('Request body field "first.1.inner.1": must be integer');
});
