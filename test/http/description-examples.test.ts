import { afterAll, beforeAll, expect, test } from "bun:test";
import { createConfig, lintFromString } from "@redocly/openapi-core";
import { Compile } from "typebox/schema";
import recorded from "../../src/main/openapi-examples.json";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { fetchResolvedDocument } from "../support/openapi-document.ts";
import { type Examples, recordExamples } from "./recorded-examples.ts";

interface MediaType {
  readonly schema: object;
  readonly example?: unknown;
}
interface Operation {
  readonly operationId: string;
  readonly summary: string;
  readonly description: string;
  readonly tags: readonly string[];
  readonly requestBody?: { readonly content: Readonly<Record<string, MediaType>> };
  readonly responses: Readonly<
    Record<string, { readonly content?: Readonly<Record<string, MediaType>> }>
  >;
}
interface Document {
  readonly tags: readonly { readonly name: string; readonly description?: string }[];
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
}

/** Media types that have schemas of JSON. */
const DESCRIBED = ["application/json", "multipart/form-data", "text/event-stream"];
/** The document itself is too long for an example, and Stripe writes the bodies of its webhook. */
const WITHOUT_EXAMPLES = ["openapi.retrieve", "billing.stripe.webhook"];

let gateway: TestGateway;
let document: Document;
let operations: Operation[];
beforeAll(async () => {
  // Stripe's webhook is a route only if Stripe is configured.
  const environment = { STRIPE_SECRET_KEY: "sk_test_x", STRIPE_WEBHOOK_SECRET: "whsec_x" };
  gateway = await startTestGateway({ environment });
  document = await fetchResolvedDocument(gateway.baseUrl);
  operations = Object.values(document.paths).flatMap((path) => Object.values(path));
});
afterAll(() => gateway.stop());

/** Returns the media types of an operation's body and of its successful answers. */
function mediaTypesOf({ operationId, requestBody, responses }: Operation) {
  const successes = Object.entries(responses).filter(([status]) => status.startsWith("2"));
  return [requestBody, ...successes.map(([, response]) => response)].flatMap((described) =>
    Object.entries(described?.content ?? {})
      .filter(([type]) => DESCRIBED.includes(type) && !WITHOUT_EXAMPLES.includes(operationId))
      .map(([type, media]) => ({ name: `${operationId} ${type}`, ...media })),
  );
}

test("every operation has an id of words and a verb, which names its resource", () => {
  const ids = operations.map(({ operationId }) => operationId);
  for (const id of ids) expect(id).toMatch(/^[a-z_]+(\.[a-z_]+)+$/);
  expect(new Set(ids).size).toBe(ids.length);
  for (const [path, methods] of Object.entries(document.paths)) {
    const [resource] = path.replace("/v1/", "").replace(/^\//, "").split(/[/.{]/);
    for (const { operationId } of Object.values(methods)) {
      expect(operationId).toStartWith(`${resource}.`);
    }
  }
});

test("every summary is a title, and every description of an operation or a tag a sentence", () => {
  for (const { summary, description } of operations) {
    expect(summary).toMatch(/^[A-Z][^.;]*$/);
    expect(description).toMatch(/^[A-Z].*\.$/);
  }
  for (const { name, description } of document.tags) {
    expect({ name, description }).toMatchObject({ description: expect.stringMatching(/\.$/) });
  }
});

test("every description of a field, a parameter and an answer begins like a sentence and ends with a period", () => {
  const faults: string[] = [];
  const visit = (value: unknown, isExample: boolean): void => {
    if (typeof value !== "object" || value === null) return;
    for (const [name, member] of Object.entries(value)) {
      const isText = name === "description" && typeof member === "string";
      if (isText && !isExample && !/^[^a-z].*\.$/s.test(member)) faults.push(member);
      visit(member, isExample || name === "example" || name === "default");
    }
  };
  visit(document, false);
  expect(faults).toEqual([]);
});

test("every body has an example, and the example fits its schema", () => {
  const media = operations.flatMap((operation) => mediaTypesOf(operation));
  const missing = media.filter(({ example }) => example === undefined).map(({ name }) => name);
  expect(missing).toEqual([]);
  const faults = media
    .filter(({ example }) => example !== undefined)
    .flatMap(({ name, schema, example }) => {
      const [, errors] = Compile(schema as never).Errors(example);
      return errors.map(({ instancePath, message }) => `${name} ${instancePath} ${message}`);
    });
  expect(faults).toEqual([]);
});

test("Redocly's recommended rules find nothing to mend", async () => {
  const config = await createConfig({ extends: ["recommended"] });
  const source = await (await fetch(`${gateway.baseUrl}/openapi.json`)).text();
  const problems = await lintFromString({ source, config });
  expect(problems.map(({ ruleId, message }) => `${ruleId}: ${message}`)).toEqual([]);
});

test("the examples have the members that the gateway answers", async () => {
  const answered = await recordExamples();
  const examples = recorded as Examples;
  expect(Object.keys(answered).sort()).toEqual(Object.keys(examples).sort());
  for (const [operationId, { response, event }] of Object.entries(answered)) {
    expect({ operationId, ...membersOf({ response, event }) }).toEqual({
      operationId,
      ...membersOf({
        response: examples[operationId]!.response,
        event: examples[operationId]!.event,
      }),
    });
  }
});

/** Returns the names of all members of a value, with their paths, sorted. Lists count by their first item. */
function membersOf(value: unknown, path = ""): { readonly members: readonly string[] } {
  if (Array.isArray(value)) return membersOf(value[0], `${path}[]`);
  if (typeof value !== "object" || value === null) return { members: [path] };
  const members = Object.entries(value).flatMap(
    ([name, member]) => membersOf(member, `${path}.${name}`).members,
  );
  return { members: members.length > 0 ? members.sort() : [path] };
}
