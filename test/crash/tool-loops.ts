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
const MODEL = "test/loop";

/** Tells the upstream what to do, and writes the gateway's configuration. */
export async function prepareLoops(upstream: UpstreamProcess, configPath: string): Promise<void> {
  await upstream.behave("loop", {
    do: "complete",
    toolCalls: [{ name: "file_search", arguments: '{"query":"harbour"}' }],
    firstDelayMs: STEP_MS,
  });
  const provider = { id: "upstream", type: "openai-compatible", base_url: upstream.baseUrl };
  const model = {
    ...{ id: MODEL, category: "chat", context_length: 128_000, max_output_tokens: 4_096 },
    ...{ input_cost_per_token: 2e-6, output_cost_per_token: 1e-6 },
    capabilities: ["streaming", "function_calling"],
    endpoints: [{ provider: "upstream", model: "loop" }],
  };
  const providers = [{ ...provider, api_key: "sk-upstream" }];
  writeFileSync(configPath, JSON.stringify({ providers, models: [model] }));
}

/** How a loop of tools is asked for. */
const FORMS = ["whole", "keyed", "streamed", "background", "keyed-background", "batched"] as const;
export type LoopForm = (typeof FORMS)[number];

/** One loop of tools, and what its client knows of it in the end. */
interface Loop {
  readonly tag: string;
  readonly form: LoopForm;
  tries: number;
  /** Undefined if the connection broke before a whole answer, or an error, had come. */
  end: "answered" | "failed" | "refused" | undefined;
  costUsd: number | undefined;
  /** Answers of one key or line that differ. */
  faults: string[];
}

interface LoopLoadOptions {
  readonly workers: number;
  readonly secretKey: string;
  readonly storeId: string;
  readonly random: () => number;
  /** Those that are there now. */
  urls(): readonly string[];
}

/** Clients that ask for loops of tools in every form, one after the other, until the load is closed. */
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

  /** Resolves when the last loops have ended. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all(this.#workers);
  }

  async #work(at: number): Promise<void> {
    for (let turn = 0; !this.#isClosed; turn++) {
      const form = FORMS[(at + turn) % FORMS.length]!;
      if (form === "batched") await this.#batch();
      else await this.#one(this.#begun(form));
    }
  }

  #begun(form: LoopForm): Loop {
    const tag = `${form}-${this.#count++}`;
    const loop: Loop = { tag, form, tries: 0, end: undefined, costUsd: undefined, faults: [] };
    this.loops.push(loop);
    return loop;
  }

  #body(tag: string): Json {
    const { storeId } = this.#options;
    const tools = [{ type: "file_search", vector_store_ids: [storeId] }];
    return { model: MODEL, input: "hello", user: tag, max_tool_calls: STEPS - 1, tools };
  }

  async #one(loop: Loop): Promise<void> {
    const { form, tag } = loop;
    const isBackground = form === "background" || form === "keyed-background";
    const isKeyed = form === "keyed" || form === "keyed-background";
    const body = {
      ...this.#body(tag),
      ...(form === "streamed" && { stream: true }),
      ...(isBackground && { background: true }),
    };
    const headers: Record<string, string> = isKeyed ? { "idempotency-key": tag } : {};
    const began = performance.now();
    for (;;) {
      loop.tries++;
      const answer = await this.#call("POST", "/v1/responses", body, headers);
      if (answer?.status === 200) {
        if (form === "streamed") return noteStream(loop, answer.text);
        const response = JSON.parse(answer.text) as Json;
        if (!isBackground) return noteResponse(loop, response);
        const ended = await this.#ended(response.id as string);
        noteResponse(loop, ended);
        if (isKeyed) await this.#sameAgain(loop, body, headers, response.id as string);
        return;
      }
      if (!isKeyed) {
        if (answer !== undefined) loop.end = "refused";
        return;
      }
      if (answer !== undefined && answer.status < 500 && answer.status !== 409) {
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

  async #batch(): Promise<void> {
    const loops = Array.from({ length: LINES_OF_BATCH }, () => this.#begun("batched"));
    const lines = loops.map(({ tag }) => {
      const line = { custom_id: tag, method: "POST", url: "/v1/responses", body: this.#body(tag) };
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
    const created = await this.#call("POST", "/v1/batches", order);
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

function noteResponse(loop: Loop, response: Json): void {
  // The model never stops to call tools.
  loop.end = response.status === "incomplete" ? "answered" : "failed";
  loop.costUsd = response.usage?.cost;
  if (loop.end === "answered" && response.output.length !== STEPS - 1) {
    loop.faults.push(`${loop.tag} has ${response.output.length} items`);
  }
}

function noteStream(loop: Loop, text: string): void {
  const [, ended] = /"type":"response\.incomplete".*"cost":([\d.e-]+)/.exec(text) ?? [];
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
    if (loop.end === "answered") answered[loop.form] = (answered[loop.form] ?? 0) + 1;
    if (loop.form !== "keyed" && loop.form !== "batched") continue;
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

function faultOf({ tag, form, end, costUsd }: Loop, paid: readonly Bill[]): string | undefined {
  const told = `${tag} ${end} ${costUsd}: ${JSON.stringify(paid, textOfInteger)}`;
  if (paid.length > 1) return `charged ${paid.length} times: ${told}`;
  const [bill] = paid;
  if (form === "keyed-background" && end === undefined) return `never ended: ${told}`;
  if ((form === "keyed" || form === "batched") && end !== "answered") {
    return `not answered: ${told}`;
  }
  if (end === "answered" || costUsd !== undefined) {
    const isExact = bill !== undefined && Number(bill.chargeNano) / 1e9 === costUsd;
    return isExact ? undefined : `not charged what it says: ${told}`;
  }
  if (bill === undefined || form === "streamed") return undefined;
  // It was charged as a whole, and its instance died before the answer had left.
  const isWhole = end === undefined && bill.status === 200;
  return isWhole ? undefined : `charged for nothing: ${told}`;
}

const textOfInteger = (_: string, value: unknown) =>
  typeof value === "bigint" ? value.toString() : value;
