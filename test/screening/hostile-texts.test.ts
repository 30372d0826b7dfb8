import { expect, test } from "bun:test";
import { GuardedEvents } from "../../src/inference/call/guard/guarded-events.ts";
import { screenCompletion } from "../../src/inference/call/guard/screen-completion.ts";
import { Pattern, PatternError } from "../../src/inference/guardrails/screening/patterns.ts";
import { screenJson } from "../../src/inference/guardrails/screening/screen-json.ts";
import type { ScreeningRule } from "../../src/inference/guardrails/screening/text-window.ts";
import type { ChatEvent } from "../../src/providers/interface.ts";

const rule = (action: ScreeningRule["action"]): ScreeningRule => ({
  ...{ guardrail: "g", type: "pattern", action, detector: new Pattern("nightfall") },
});
const BLOCKING = [rule("block")];

test.each([
  ["a text that begins like a data URL", { content: "data:a/b, nightfall" }],
  ["the schema of an answer", { text: { format: { schema: { description: "nightfall" } } } }],
  ["a name in such a schema", { text: { format: { schema: { nightfall: {} } } } }],
  ["a member that is there twice", { arguments: '{"a": "nightfall", "a": ""}' }],
  ["one within another", { arguments: '[{"b": {"a": "nightfall", "a": 1}}]' }],
])("%s hides nothing", (_, value) => {
  const given = JSON.stringify(value);
  const { isBlocked, value: left } = screenJson(value, BLOCKING);
  expect(isBlocked || !JSON.stringify(left).includes("nightfall")).toBe(true);
  expect(JSON.stringify(screenJson(value, [rule("redact")]).value)).not.toContain("nightfall");
  expect(given).toContain("nightfall");
});

test("images in base64 and JSON with nothing in it stay as they are", () => {
  const value = {
    source: { type: "url", url: "data:image/png;base64,AAAA" },
    arguments: '{"a": "say \\"b\\": c", "n": 12345678901234567890, "l": [{"a": 1}, {"a": 2}]}',
  };
  expect(screenJson(value, BLOCKING).value).toBe(value);
});

test("calls whose arguments are nested deeper than the stack do not pass, and end nothing", () => {
  const text = `${"[".repeat(200_000)}"nightf\\u0061ll"${"]".repeat(200_000)}`;
  expect(screenJson({ arguments: text }, BLOCKING).value.arguments).toBe('"[REDACTED]"');
});

test("a pattern whose matches take ever longer ends in time, and nothing behind passes", () => {
  const detector = new Pattern("(?s)a.*b|a");
  const text = "a".repeat(100_000);
  const found = detector.find(text, 0);
  expect(found[0]!.start).toBe(0);
  expect(found.at(-1)!.end).toBe(text.length);
  expect(found.length).toBeLessThan(text.length);
});

test("patterns that would cost a stream too much are refused, usual ones are not", () => {
  for (const source of ["(?:[ab]{1,30}){30}d", "(?:a?b?c?d?){300}z+"]) {
    expect(() => new Pattern(source)).toThrow(PatternError);
  }
  for (const source of [
    "(?i)project[- ]nightfall",
    "(?i)\\b(?:password|passwd|secret|api[_-]?key)\\s*[:=]\\s*\\S+",
    "\\b[A-Z]{2}\\d{6,12}\\b",
    "https?://(?:[a-z0-9-]+\\.)+internal\\S*",
  ]) {
    expect(new Pattern(source).longest).toBeGreaterThan(0);
  }
});

const foreign = (step: "done" | { readonly event: string }, fields: object): ChatEvent => ({
  ...{ type: "foreign_item", choice: 0, item: 0, step },
  fields: fields as Readonly<Record<string, unknown>>,
});

test("items of tools that the provider runs are looked through, whole and streamed", async () => {
  const item = { type: "mcp_call", output: "about nightfall" };
  const choice = { text: "Done.", toolCalls: [], pieces: [foreign("done", item)] };
  const completion = { choices: [choice] } as never;
  expect(screenCompletion(completion, BLOCKING).isBlocked).toBe(true);

  const batches = ["night", "fall"].map((delta) => [
    foreign({ event: "response.custom_tool_call_input.delta" }, { delta }),
  ]);
  const events = new GuardedEvents(
    {
      read: async () => ({ done: batches.length === 0, value: batches.shift() }),
      cancel: async () => undefined,
    } as never,
    {
      ...{ rules: BLOCKING, withholdsAll: false, onMatches: () => undefined },
      moderate: async () => true,
      onBlocked: () => new Error("blocked") as never,
    },
  );
  const shown: ChatEvent[] = [];
  for (let next = await events.read(); !next.done; next = await events.read()) {
    shown.push(...next.value!);
  }
  expect(shown).toEqual([
    { type: "withheld", choice: 0, bytes: 5 },
    { type: "withheld", choice: 0, bytes: 4 },
  ]);
});
