import { writeFileSync } from "node:fs";
import { formOf } from "../support/files-gateway.ts";
import { until } from "../support/until.ts";
import type { Served } from "../upstream/served.ts";
import { type Bill, billsByTag, brokenRules, look } from "./books.ts";
import type { UpstreamProcess } from "./upstream-process.ts";

// biome-ignore lint/suspicious/noExplicitAny: what is compared with what is expected
type Json = Record<string, any>;

/** Provider calls of each loop; the gateway runs a tool after all but the last one. */
export const STEPS = 4;
const STEP_MS = 40;
const LINES_OF_BATCH = 4;
const RETRY_MS = 40;
const POLL_MS = 100;
const PATIENCE_MS = 120_000;
/** Whose model calls a tool in each step, and one that answers at once. */
const LOOP_MODEL = "loop";
const PLAIN_MODEL = "plain-answer";

/** Tells the upstream what to do, and writes the gateway's configuration. */
export async function prepareLoops(upstream: UpstreamProcess, configPath: string): Promise<void> {
  await upstream.behave(PLAIN_MODEL, {
    do: "complete",
    content: "word ".repeat(20),
    events: 20,
    firstDelayMs: STEP_MS,
    delayMs: 5,
  });
  await upstream.behave(LOOP_MODEL, {
    do: "complete",
    toolCalls: [{ name: "file_search", arguments: '{"query":"harbour"}' }],
    firstDelayMs: STEP_MS,
  });
  const provider = { id: "upstream", type: "openai-compatible", base_url: upstream.baseUrl };
  const models = [LOOP_MODEL, PLAIN_MODEL].map((name) => ({
    ...{ id: `test/${name}`, category: "chat", context_length: 128_000, max_output_tokens: 4_096 },
    ...{ input_cost_per_token: 2e-6, output_cost_per_token: 1e-6 },
    capabilities: ["streaming", "function_calling"],
    endpoints: [{ provider: "upstream", model: name }],
  }));
  const providers = [{ ...provider, api_key: "sk-upstream" }];
  writeFileSync(configPath, JSON.stringify({ providers, models }));
}

/** What a request of the Responses API may have, alone or together with another. */
const FEATURES = [
  "tools",
  "stream",
  "background",
  "key",
  "cache",
  "guardrail",
  "budget",
  "batch",
] as const;
export type Feature = (typeof FEATURES)[number];

/** A line of a batch has neither of these. */
const NOT_IN_BATCHES: ReadonlySet<Feature> = new Set(["stream", "background", "key", "cache"]);

/** All pairs that one request can have. */
export const PAIRS: readonly (readonly Feature[])[] = FEATURES.flatMap((one, at) =>
  FEATURES.slice(at + 1)
    .filter((other) => other !== "batch" || !NOT_IN_BATCHES.has(one))
    .map((other) => [one, other]),
);

/** Loops of tools, in each way to ask for them. */
export const LOOPS: readonly (readonly Feature[])[] = [
  ["tools"],
  ["tools", "key"],
  ["tools", "stream"],
  ["tools", "background"],
  ["tools", "background", "key"],
  ["tools", "batch"],
];

/** One request, and what its client knows of it in the end. */
interface Loop {
  readonly tag: string;
  readonly features: ReadonlySet<Feature>;
  tries: number;
  /** Undefined if the connection broke before a whole answer, or an error, had come. */
  end: "answered" | "failed" | "refused" | undefined;
  costUsd: number | undefined;
  /** Answers of one key or line that differ. */
  faults: string[];
}

interface LoopLoadOptions {
  readonly workers: number;
  /** Sent in turn. */
  readonly kinds: readonly (readonly Feature[])[];
  readonly secretKey: string;
  /** With a budget that nothing exceeds. */
  readonly limitedKey?: string;
  /** Name of a guardrail that finds nothing. */
  readonly guardrail?: string;
  readonly storeId: string;
  readonly random: () => number;
  /** Those that are there now. */
  urls(): readonly string[];
}

/** Clients that send requests of each kind, one after the other, until the load is closed. */
export class LoopLoad {
  readonly loops: Loop[] = [];
  readonly #options: LoopLoadOptions;
  readonly #workers: Promise<void>[];
  #count = 0;
  #isClosed = false;

  constructor(options: LoopLoadOptions) {
    this.#options = options;
    this.#workers = Array.from({ length: options.workers }, (_, at) => this.#work(at));
  }

  /** Resolves when requests of each kind have been answered, and the last ones have ended. */
  async close(): Promise<void> {
    const names = this.#options.kinds.map((kind) => kind.join("+"));
    await until(
      "requests of each kind are answered",
      () => {
        const answered = this.loops.filter(({ end }) => end === "answered");
        const those = new Set(answered.map(({ features }) => nameOf(features)));
        return names.every((name) => those.has(name));
      },
      PATIENCE_MS,
    );
    this.#isClosed = true;
    await Promise.all(this.#workers);
  }

  async #work(at: number): Promise<void> {
    const { kinds } = this.#options;
    for (let turn = 0; !this.#isClosed; turn++) {
      const features = new Set(kinds[(at + turn) % kinds.length]!);
      if (features.has("batch")) await this.#batch(features);
      else await this.#one(this.#begun(features));
    }
  }

  #begun(features: ReadonlySet<Feature>): Loop {
    const tag = `${nameOf(features)}-${this.#count++}`;
    const loop: Loop = { tag, features, tries: 0, end: undefined, costUsd: undefined, faults: [] };
    this.loops.push(loop);
    return loop;
  }

  #body({ tag, features }: Loop): Json {
    const { storeId, guardrail } = this.#options;
    const tools = [{ type: "file_search", vector_store_ids: [storeId] }];
    return {
      ...{ model: `test/${PLAIN_MODEL}`, input: "hello", user: tag },
      ...(features.has("tools") && {
        ...{ model: `test/${LOOP_MODEL}`, max_tool_calls: STEPS - 1, tools },
      }),
      ...(features.has("stream") && { stream: true }),
      ...(features.has("background") && { background: true }),
      ...(features.has("guardrail") && { guardrail }),
    };
  }

  #keyOf(features: ReadonlySet<Feature>): string {
    const { secretKey, limitedKey } = this.#options;
    return features.has("budget") ? limitedKey! : secretKey;
  }

  async #one(loop: Loop): Promise<void> {
    const { features, tag } = loop;
    const isBackground = features.has("background");
    const isKeyed = features.has("key");
    const body = this.#body(loop);
    const headers: Record<string, string> = {
      authorization: `Bearer ${this.#keyOf(features)}`,
      ...(isKeyed && { "idempotency-key": tag }),
      ...(features.has("cache") && { "x-gateway-cache": "on" }),
    };
    const began = performance.now();
    for (;;) {
      loop.tries++;
      const answer = await this.#call("POST", "/v1/responses", body, headers);
      if (answer?.status === 200) {
        if (!isBackground && !features.has("stream")) {
          return noteResponse(loop, JSON.parse(answer.text) as Json);
        }
        if (!isBackground) noteStream(loop, answer.text);
        else {
          const [, id] = /"id":"(resp_[0-9a-f]+)"/.exec(answer.text) ?? [];
          if (id !== undefined) {
            noteResponse(loop, await this.#ended(id));
            const isWhole = isKeyed && !features.has("stream");
            if (isWhole) await this.#sameAgain(loop, body, headers, id);
          }
        }
        if (loop.end !== undefined || !isKeyed) return;
      }
      if (!isKeyed) {
        if (answer !== undefined) loop.end = "refused";
        return;
      }
      const isRefused = answer !== undefined && answer.status >= 400 && answer.status < 500;
      if (isRefused && answer.status !== 409) {
        loop.faults.push(`${tag}: ${answer.status} ${answer.text}`);
        return;
      }
      if (performance.now() - began > PATIENCE_MS) {
        loop.faults.push(`${tag} was never answered: ${answer?.status} ${answer?.text}`);
        return;
      }
      await Bun.sleep(RETRY_MS);
    }
  }

  async #sameAgain(loop: Loop, body: Json, headers: Record<string, string>, id: string) {
    const again = await this.#insist("POST", "/v1/responses", body, headers);
    const found = (JSON.parse(again) as Json).id;
    if (found !== id) loop.faults.push(`${loop.tag} is ${id} and ${found}`);
  }

  /** The background response once it is over. */
  async #ended(id: string): Promise<Json> {
    for (;;) {
      const response = JSON.parse(await this.#insist("GET", `/v1/responses/${id}`)) as Json;
      if (response.status !== "queued" && response.status !== "in_progress") return response;
      await Bun.sleep(POLL_MS);
    }
  }

  async #batch(features: ReadonlySet<Feature>): Promise<void> {
    const loops = Array.from({ length: LINES_OF_BATCH }, () => this.#begun(features));
    const headers = { authorization: `Bearer ${this.#keyOf(features)}` };
    const lines = loops.map((loop) => {
      const body = this.#body(loop);
      const line = { custom_id: loop.tag, method: "POST", url: "/v1/responses", body };
      return `${JSON.stringify(line)}\n`;
    });
    const file = new File([lines.join("")], "requests.jsonl");
    const uploaded = await this.#insist(
      "POST",
      "/v1/files",
      formOf(["purpose", "batch"], ["file", file]),
    );
    const order = {
      input_file_id: JSON.parse(uploaded).id,
      endpoint: "/v1/responses",
      completion_window: "24h",
    };
    const created = await this.#call("POST", "/v1/batches", order, headers);
    if (created?.status !== 200) {
      // Whether it was created is not known: it is no part of the proof.
      this.loops.splice(this.loops.indexOf(loops[0]!), LINES_OF_BATCH);
      return;
    }
    const { id } = JSON.parse(created.text) as Json;
    const batch = await until(
      "the batch has ended",
      async () => {
        const read = JSON.parse(await this.#insist("GET", `/v1/batches/${id}`)) as Json;
        return read.completed_at === null && read.status !== "failed" ? undefined : read;
      },
      PATIENCE_MS,
    );
    const first = loops[0]!;
    if (batch.error_file_id !== null) {
      const text = await this.#insist("GET", `/v1/files/${batch.error_file_id}/content`);
      first.faults.push(`${id} has errors: ${text}`);
    }
    if (batch.output_file_id === null) return;
    const text = await this.#insist("GET", `/v1/files/${batch.output_file_id}/content`);
    for (const line of text.trim().split("\n")) {
      const { custom_id: tag, response } = JSON.parse(line) as Json;
      const loop = loops.find((one) => one.tag === tag);
      if (loop === undefined || loop.end !== undefined) first.faults.push(`${tag} twice in ${id}`);
      else noteResponse(loop, response.body as Json);
    }
  }

  /** Undefined if the connection broke. */
  async #call(
    method: string,
    path: string,
    body?: Json | FormData,
    headers: Record<string, string> = {},
  ): Promise<{ readonly status: number; readonly text: string } | undefined> {
    const { urls, random, secretKey } = this.#options;
    const bases = urls();
    const base = bases[Math.floor(random() * bases.length)];
    if (base === undefined) {
      await Bun.sleep(RETRY_MS);
      return undefined;
    }
    const isJson = body !== undefined && !(body instanceof FormData);
    try {
      const response = await fetch(base + path, {
        method,
        // A connection that is used again could send a request twice when it breaks.
        keepalive: false,
        headers: {
          authorization: `Bearer ${secretKey}`,
          ...(isJson && { "content-type": "application/json" }),
          ...headers,
        },
        ...(body !== undefined && { body: isJson ? JSON.stringify(body) : (body as FormData) }),
      });
      return { status: response.status, text: await response.text() };
    } catch {
      return undefined;
    }
  }

  /** Again until it is answered. */
  #insist(
    method: string,
    path: string,
    body?: Json | FormData,
    headers: Record<string, string> = {},
  ): Promise<string> {
    return until(
      `${path} answers`,
      async () => {
        const answer = await this.#call(method, path, body, headers);
        return answer?.status === 200 ? { text: answer.text } : undefined;
      },
      PATIENCE_MS,
    ).then(({ text }) => text);
  }
}

function nameOf(features: ReadonlySet<Feature>): string {
  return [...features].join("+");
}

function noteResponse(loop: Loop, response: Json): void {
  const hasTools = loop.features.has("tools");
  // The model of loops never stops to call tools.
  const isAnswered = response.status === (hasTools ? "incomplete" : "completed");
  loop.end = isAnswered ? "answered" : "failed";
  loop.costUsd = response.usage?.cost;
  if (isAnswered && response.output.length !== (hasTools ? STEPS - 1 : 1)) {
    loop.faults.push(`${loop.tag} has ${response.output.length} items`);
  }
}

function noteStream(loop: Loop, text: string): void {
  const whole = /"type":"response\.(?:incomplete|completed)".*"cost":([\d.e-]+)/;
  const [, ended] = whole.exec(text) ?? [];
  if (ended === undefined || !text.endsWith("data: [DONE]\n\n")) return;
  loop.end = "answered";
  loop.costUsd = Number(ended);
}

/** What the audit of a load has found. */
export interface LoopFindings {
  readonly violations: readonly string[];
  readonly answered: Readonly<Record<string, number>>;
  /** Loops that were asked for again after their first step, and went on from it. */
  readonly resumed: number;
}

/** Holds the books against what the clients have seen, and what the upstream has served. */
export async function auditLoops(
  databaseUrl: string,
  loops: readonly Loop[],
  served: readonly Served[],
): Promise<LoopFindings> {
  const [broken, bills, left] = await look(databaseUrl, async (sql) => [
    await brokenRules(sql),
    await billsByTag(sql),
    await sql`SELECT key_id, idempotency_key FROM answer_steps`,
  ]);
  const violations = [...broken];
  for (const { key_id, idempotency_key } of left) {
    violations.push(`steps of ${key_id} ${idempotency_key} are left`);
  }
  const calls = Map.groupBy(served, ({ requestBody }) => String(requestBody?.user));
  const answered: Record<string, number> = {};
  let resumed = 0;
  for (const loop of loops) {
    violations.push(...loop.faults);
    const paid = (bills.get(loop.tag) ?? []).filter(
      ({ chargeNano, isRefunded }) => chargeNano > 0n && !isRefunded,
    );
    const fault = faultOf(loop, paid);
    if (fault !== undefined) violations.push(fault);
    const name = nameOf(loop.features);
    if (loop.end === "answered") answered[name] = (answered[name] ?? 0) + 1;
    if (name !== "tools+key" && name !== "tools+batch") continue;
    const steps = (calls.get(loop.tag) ?? []).map(stepOf);
    if (steps.length > STEPS && steps.indexOf(1) >= 0) {
      if (steps.lastIndexOf(0) > steps.indexOf(1)) {
        violations.push(`${loop.tag} began again after its first step: ${steps}`);
      } else resumed++;
    }
  }
  return { violations, answered, resumed };
}

/** Which step of its loop a call of the provider was, from 0: each adds two messages. */
function stepOf({ requestBody }: Served): number {
  const { messages } = requestBody as { readonly messages: readonly unknown[] };
  return (messages.length - 1) / 2;
}

function faultOf({ tag, features, end, costUsd, tries }: Loop, paid: readonly Bill[]) {
  const told = `${tag} ${end} ${costUsd}: ${JSON.stringify(paid, textOfInteger)}`;
  const isStream = features.has("stream");
  const isInsisted = features.has("key") || features.has("batch");
  // What a stream has delivered before its instance died stays charged, and its repetition is a new call.
  const most = isStream && features.has("key") ? tries : 1;
  if (paid.length > most) return `charged ${paid.length} times: ${told}`;
  if (isInsisted && end === undefined) return `never ended: ${told}`;
  const mayFail = features.has("background");
  if (isInsisted && !mayFail && end !== "answered") return `not answered: ${told}`;
  if (costUsd !== undefined) {
    const costs = paid.map(({ chargeNano }) => Number(chargeNano) / 1e9);
    const isExact = costUsd === 0 ? paid.length === 0 : costs.includes(costUsd);
    return isExact ? undefined : `not charged what it says: ${told}`;
  }
  if (end === "answered") return `answered without a cost: ${told}`;
  if (paid.length === 0 || isStream) return undefined;
  // It was charged as a whole, and its instance died before the answer had left.
  const isWhole = end === undefined && paid[0]!.status === 200;
  return isWhole ? undefined : `charged for nothing: ${told}`;
}

const textOfInteger = (_: string, value: unknown) =>
  typeof value === "bigint" ? value.toString() : value;
