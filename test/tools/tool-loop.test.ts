import { describe, expect, test } from "bun:test";
import type { Candidate } from "../../src/inference/call/routing/plan-route.ts";
import { CUT, MAX_ALL_OUTPUTS, MAX_OUTPUT } from "../../src/inference/tools/added-messages.ts";
import type { GatewayTool, ToolOutcome, ToolRun } from "../../src/inference/tools/tool.ts";
import { type LoopParts, type LoopStep, ToolLoop } from "../../src/inference/tools/tool-loop.ts";
import type { ToolPrices } from "../../src/lib/catalogue-model.ts";
import { GatewayError } from "../../src/lib/errors.ts";
import { estimatedUsage, type Usage } from "../../src/lib/usage.ts";
import type { ChatEvent, PieceReader } from "../../src/providers/interface.ts";
import { readyStream } from "../../src/providers/whole-as-stream.ts";
import { until } from "../support/until.ts";

type Events = readonly ChatEvent[];
type EventOf<Type extends ChatEvent["type"]> = Extract<ChatEvent, { readonly type: Type }>;

const choice = 0;
const ONE_EACH = { fixedFemto: 1, perUnitFemto: 1, fixedTokens: 1, perUnitTokens: 1 };
const used = (promptTokens: number, completionTokens: number): ChatEvent => ({
  type: "usage",
  usage: { ...estimatedUsage(promptTokens, completionTokens), estimated: false },
});
const text = (said: string): ChatEvent => ({ type: "text", choice, text: said });
const finish = (reason: "stop" | "tool_calls"): ChatEvent => ({ type: "finish", choice, reason });
const call = (index: number, json = "{}", name = "try"): ChatEvent => ({
  type: "tool_call",
  ...{ choice, index, id: `c${index}`, name, arguments: json },
});
const calls = (count: number): Events => [
  ...Array.from({ length: count }, (_, index) => call(index)),
  finish("tool_calls"),
  used(10, 5),
];
const ANSWER: Events = [text("Done."), finish("stop"), used(30, 2)];

interface Script {
  /** Of the model, one for each step; the last one from then on. */
  readonly steps: readonly Events[];
  run?(call: ToolRun): Promise<Omit<ToolOutcome, "item">>;
  readonly prices?: Partial<ToolPrices>;
  /** Whether the money is there. */
  covers?(usage: Usage, moreFemto: bigint): boolean;
  readonly parts?: Partial<LoopParts>;
}

/** A loop over a model that answers by a script, with what was asked of it. */
function loopOf({ steps, run, prices = {}, covers = () => true, parts = {} }: Script) {
  const asked: LoopStep[] = [];
  const done: string[] = [];
  const stepAt = (at: number): PieceReader<Events> =>
    readyStream(steps[Math.min(at, steps.length - 1)]!).events({
      id: "req_1",
    });
  const tool: GatewayTool = {
    name: "try",
    description: "Tries",
    parameters: { type: "object" },
    quantitiesBound: { webSearches: 1 },
    async run(given) {
      done.push(`run ${given.arguments}`);
      const outcome = await (run?.(given) ?? { output: "tried" });
      return { item: { type: "try_call", tried: true }, ...outcome };
    },
  };
  const terms = { contextLength: 1_000, maxOutputTokens: 8_000, capabilities: ["vision"] };
  const toolPrices = { webSearchFemto: 0n, fileSearchFemto: 0n, ...prices };
  const candidate = { terms, toolPrices } as unknown as Candidate;
  const loop = new ToolLoop(stepAt(0), {
    ...{ organizationId: "org_1", keyId: "key_1", requestId: "req_1" },
    ...{ signal: new AbortController().signal, tools: new Map([[tool.name, tool]]), items: [] },
    ...{ maxRuns: 10, holdsFirstStep: false, maxStepBytes: 10_000 },
    steps: {
      async checkpoint() {
        done.push("checkpoint");
      },
      async reserveStep(_, usage, { costFemto }) {
        return covers(usage, BigInt(costFemto));
      },
    },
    model: {
      candidate,
      statedLimit: undefined,
      async ask(step) {
        // As it stands now: later steps add to the same list.
        asked.push({ ...step, added: [...step.added] });
        done.push("ask");
        return stepAt(asked.length);
      },
      bound: () => ({
        ...{ fixedFemto: 1_000, perUnitFemto: 1, units: 8_000 },
        ...{ fixedTokens: 1_000, perUnitTokens: 1 },
      }),
      promptTokens: (added) => 100 + added.length,
    },
    ...parts,
  });
  return { loop, asked, done };
}

async function eventsOf(reader: PieceReader<Events>): Promise<ChatEvent[]> {
  const events: ChatEvent[] = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return events;
    events.push(...value!);
  }
}

const only = <Type extends ChatEvent["type"]>(events: Events, type: Type) =>
  events.filter((event) => event.type === type) as EventOf<Type>[];

describe("a loop of tools", () => {
  test("checkpoints each step before its tools run, and what these cost before the next step", async () => {
    const prices = { webSearchFemto: 7n };
    const run = async () => ({ output: "tried", quantities: { webSearches: 1 } });
    const { loop, done } = loopOf({ steps: [calls(2), ANSWER], run, prices });
    const events = await eventsOf(loop);
    expect(done).toEqual(["checkpoint", "run {}", "run {}", "checkpoint", "ask"]);
    const last = only(events, "usage").at(-1)!.usage;
    expect(last).toMatchObject({ promptTokens: 40, completionTokens: 7, webSearches: 2 });
    expect(last.earlier).toMatchObject([{ promptTokens: 10, completionTokens: 5 }]);
    expect(events.at(-1)).toMatchObject({ type: "finish", reason: "stop" });
  });

  test("shows what a run has found behind the checkpoint of its price, while others still run", async () => {
    const run = ({ arguments: json }: ToolRun) =>
      json === "[]"
        ? new Promise<never>(() => undefined)
        : Promise.resolve({ output: "tried", quantities: { webSearches: 1 } });
    const steps = [[call(0), call(1, "[]"), finish("tool_calls"), used(10, 5)]] as Events[];
    const { loop, done } = loopOf({ steps, run, prices: { webSearchFemto: 7n } });
    const events: ChatEvent[] = [];
    while (!only(events, "tool_run").some(({ isOver }) => isOver)) {
      events.push(...(await loop.read()).value!);
    }
    expect(only(events, "usage").at(-1)!.usage.webSearches).toBe(1);
    expect(done).toEqual(["checkpoint", "run {}", "run []", "checkpoint"]);
    await loop.cancel();
  });

  test("runs nothing that no money covers, and says why it ends", async () => {
    const prices = { webSearchFemto: 7n };
    const covers = (_: Usage, moreFemto: bigint) => moreFemto !== 14n;
    const { loop, done, asked } = loopOf({ steps: [calls(2)], prices, covers });
    const events = await eventsOf(loop);
    expect(done).toEqual(["checkpoint"]);
    expect(asked).toEqual([]);
    expect(only(events, "tool_run").map(({ state }) => state)).toEqual([
      "in_progress",
      "in_progress",
      "failed",
      "failed",
    ]);
    expect(events.at(-1)).toMatchObject({ reason: "length", limit: "max_cost" });
  });

  test.each([
    ["all of it", 1_000n + 8_000n, undefined],
    ["what is held at most where that is not there", 1_000n + 7_999n, 4_096],
    ["less, nearly all that is left", 1_000n + 3_000n, 2_896],
    ["the least", 1_000n + 256n, 256],
  ] as const)("asks for the limit that the money covers: %s", async (_, freeFemto, expected) => {
    const covers = (__: Usage, moreFemto: bigint) => moreFemto <= freeFemto;
    const { loop, asked } = loopOf({ steps: [calls(1), ANSWER], covers });
    await eventsOf(loop);
    expect(asked[0]!.outputTokens).toBe(expected);
  });

  test("asks for no more than is left of the caller's limit, and not at all where nothing is", async () => {
    const steps = [calls(1), calls(1), ANSWER];
    for (const [statedLimit, limits] of [
      [100, [95, 90]],
      [9, [4]],
      [5, []],
    ] as const) {
      const asked: (number | undefined)[] = [];
      const { loop } = loopOf({
        steps,
        parts: {
          model: {
            candidate: { terms: { capabilities: [] } } as unknown as Candidate,
            statedLimit,
            async ask({ outputTokens }) {
              asked.push(outputTokens);
              return readyStream(steps[asked.length]!).events({
                id: "req_1",
              });
            },
            bound: () => ({ ...ONE_EACH, units: 8_000 }),
            promptTokens: () => 1,
          },
        },
      });
      const events = await eventsOf(loop);
      expect(asked).toEqual([...limits]);
      const isShort = limits.length < 2;
      expect(events.at(-1)).toMatchObject({ reason: isShort ? "length" : "stop" });
      expect(events.at(-1)).not.toHaveProperty("limit");
    }
  });

  test("sends the model what tools answer up to a bound, images included", async () => {
    const long = "x".repeat(MAX_OUTPUT + 1);
    const image = `data:image/png;base64,${"A".repeat(100)}`;
    const run = async () => ({ output: long, images: [image] });
    const runs = MAX_ALL_OUTPUTS / MAX_OUTPUT + 2;
    const parts = { maxRuns: runs };
    const { loop, asked } = loopOf({ steps: [calls(runs), ANSWER], run, parts });
    await eventsOf(loop);
    const [assistant, ...answers] = asked[0]!.added;
    expect(assistant!.tool_calls).toHaveLength(runs);
    const images = answers.pop()!;
    expect(answers[0]!.content).toBe("x".repeat(MAX_OUTPUT) + CUT);
    expect(answers.at(-1)!.content).toBe(CUT);
    const all = answers.map(({ content }) => String(content).length - CUT.length);
    const shown = (images.content as { type: string }[]).filter(({ type }) => type !== "text");
    const sum = all.reduce((total, length) => total + length, 0);
    expect(sum + shown.length * image.length).toBe(MAX_ALL_OUTPUTS);
    expect(shown.length).toBeGreaterThan(0);
    expect(shown.length).toBeLessThan(runs);
  });

  test("ends a read at once when it is cancelled, and its tools are told to stop", async () => {
    let signal: AbortSignal | undefined;
    const run = (given: ToolRun) => {
      signal = given.signal;
      return new Promise<never>(() => undefined);
    };
    const { loop, asked } = loopOf({ steps: [calls(1), ANSWER], run });
    const events = eventsOf(loop);
    await until("the tool runs", () => signal !== undefined);
    await loop.cancel();
    expect(only(await events, "tool_run")).toHaveLength(1);
    expect(signal!.aborted).toBe(true);
    expect(asked).toEqual([]);
    expect(await loop.read()).toEqual({ done: true });
  });

  test.each([
    ["what it rejects with", new GatewayError("invalid_api_key", "Revoked."), "invalid_api_key"],
    [
      "a database that cannot do it",
      Object.assign(new Error("disk full"), { code: "53100" }),
      "database_unavailable",
    ],
    ["a bug of it", new TypeError("no such member"), "internal"],
  ])("fails with the gateway's own error where a tool does: %s", async (_, thrown, code) => {
    const run = () => Promise.reject(thrown);
    const { loop } = loopOf({ steps: [calls(1), ANSWER], run });
    const failed = await eventsOf(loop).catch((error: unknown) => error);
    expect(failed).toBeInstanceOf(GatewayError);
    expect(failed).toMatchObject({ code });
  });

  test("holds the first step back to its end where another provider may take over", async () => {
    const parts = { holdsFirstStep: true };
    const { loop } = loopOf({ steps: [[text("a"), text("b"), finish("stop"), used(1, 2)]], parts });
    const first = await loop.read();
    expect(only(first.value!, "text")).toHaveLength(2);
    const broken = loopOf({ steps: [[text("a")]], parts });
    expect(broken.loop.read()).rejects.toThrow("without a finish reason");
    const endless = loopOf({ steps: [[text("a".repeat(10_001))]], parts });
    expect(endless.loop.read()).rejects.toThrow("exceeds the output token limit");
  });

  test("counts what a provider does not report, calls that the client does not see included", async () => {
    const json = JSON.stringify({ query: "x".repeat(390) });
    const steps = [
      [call(0, json), finish("tool_calls")],
      [text("Done."), finish("stop")],
    ];
    const { loop } = loopOf({ steps: steps as Events[] });
    const usages = only(await eventsOf(loop), "usage").map(({ usage }) => usage);
    expect(usages[0]).toMatchObject({ promptTokens: 100, completionTokens: 102, estimated: true });
    expect(usages.at(-1)).toMatchObject({ promptTokens: 202, completionTokens: 104 });
    for (const [at, { promptTokens }] of usages.entries()) {
      expect(promptTokens).toBeGreaterThanOrEqual(usages[at - 1]?.promptTokens ?? 0);
    }
  });

  test("counts what follows usage that a provider reports before its answer", async () => {
    const long = "a".repeat(400);
    const answer = [used(50, 0), text(long), text(long)];
    for (const before of [[], [calls(1)]]) {
      const { loop } = loopOf({ steps: [...before, answer] });
      const usages = only(await eventsOf(loop), "usage").map(({ usage }) => usage);
      const { completionTokens } = usages.at(-1)!;
      expect(completionTokens).toBe(200 + 5 * before.length);
      expect(usages.at(-1)!.estimated).toBe(true);
    }
  });

  test("measures a step's prompt once, however many pieces its answer comes in", async () => {
    let measured = 0;
    const promptTokens = () => {
      measured++;
      return 100;
    };
    const pieces = Array.from({ length: 500 }, () => [text("a ")]);
    const answer: Events[] = [...pieces, [finish("stop")]];
    const { loop } = loopOf({
      steps: [calls(1)],
      parts: {
        model: {
          ...{ statedLimit: undefined, promptTokens },
          candidate: { terms: { capabilities: [], prices: {} } } as unknown as Candidate,
          bound: () => ({ ...ONE_EACH, units: 10 }),
          ask: async () => ({
            read: async () => {
              const value = answer.shift();
              return value === undefined ? { done: true } : { done: false, value };
            },
            cancel: async () => undefined,
          }),
        },
      },
    });
    const events = await eventsOf(loop);
    expect(only(events, "text")).toHaveLength(pieces.length);
    expect(measured).toBe(1);
  });

  test("cites what the answer names of what was found", async () => {
    const found = [
      { kind: "url", url: "https://a.example/x", title: "X" },
      { kind: "url", url: "https://a.example/x/y", title: "Y" },
      { kind: "file", fileId: "file_1", filename: "b.txt" },
      // Of another search.
      { kind: "url", url: "https://a.example/x", title: "X" },
    ] as const;
    const run = async () => ({ output: "tried", sources: found });
    const said = "See [Y](https://a.example/x/y), b.txt and https://a.example/x.";
    const { loop } = loopOf({ steps: [calls(1), [text(said), finish("stop")]], run });
    const [, cited] = only(await eventsOf(loop), "text");
    expect(cited!.annotations).toEqual([
      {
        type: "url_citation",
        url_citation: { url: found[1].url, title: "Y", start_index: 4, end_index: 30 },
      },
      { type: "file_citation", file_citation: { file_id: "file_1", filename: "b.txt", index: 37 } },
      {
        type: "url_citation",
        url_citation: { url: found[0].url, title: "X", start_index: 42, end_index: 61 },
      },
    ]);
  });
});
