import { answerBatchJob } from "./batch-jobs.ts";
import { UpstreamBatches } from "./batches.ts";
import type { Behaviour } from "./behaviours.ts";
import { answerChat } from "./chat.ts";
import { answerControl } from "./control.ts";
import { answerEmbeddings } from "./embeddings.ts";
import { UpstreamTuning } from "./fine-tuning.ts";
import { asObject, type JsonObject } from "./json.ts";
import { messageError, messageFor, UpstreamMessageBatches } from "./message-batches.ts";
import { createLedger, type Ledger, recordOf, type Served } from "./served.ts";
import { answerSpeech } from "./speech.ts";
import { createPlan, type Plan, type UpstreamState } from "./state.ts";
import { answerTranscript, isTranscript } from "./transcripts.ts";
import { JSON_BODY, refusal } from "./wire.ts";

const KEPT_RECORDS = 10_000;
const LARGEST_REQUEST_BYTES = 256 * 1_048_576;

export interface UpstreamOptions {
  /** 0, the default, takes a free one. */
  port?: number;
  /** Of everything random, so that a failure can be replayed. */
  seed?: number;
  /** Of models without one of their own; the regular completion unless told otherwise. */
  behaviour?: Behaviour;
  /** Listed at /v1/models. */
  models?: string[];
  /** How many served requests stay listed; totals count all. */
  keep?: number;
  /** Answer `/__served`, `/__behave` and `/__reset`. */
  remoteControl?: boolean;
  nowMs?: () => number;
}

/** A provider that speaks OpenAI's wire format and does what it is told. */
export interface Upstream {
  port: number;
  /** Ends in `/v1`. */
  baseUrl: string;
  /** Newest last. */
  served: Served[];
  /** Those that asked for this model. */
  servedOf(model: string): Served[];
  totals: Ledger["totals"];
  until: Ledger["until"];
  behave: Plan["behave"];
  enqueue: Plan["enqueue"];
  /** Trainings, and how they go. */
  tuning: UpstreamTuning;
  /** Batches, as OpenAI and Mistral have them, and how they go. Their requests are served as others are, and have the id of their batch. */
  batches: UpstreamBatches;
  /** The same in Anthropic's wire, with unstreamed messages. */
  messageBatches: UpstreamMessageBatches;
  /** Forgets behaviours and records. */
  reset(): void;
  /** Closes every connection at once. */
  stop(): Promise<void>;
}

/** Serves chat completions, embeddings, speech, transcripts, models, trainings and batches on 127.0.0.1, under any prefix such as `/v1`. */
export async function startUpstream(options: UpstreamOptions = {}): Promise<Upstream> {
  const ledger = createLedger(options.keep ?? KEPT_RECORDS);
  const plan = createPlan(options.behaviour ?? { do: "complete" });
  const state: UpstreamState = {
    seed: options.seed ?? 1,
    nowMs: options.nowMs ?? Date.now,
    ledger,
    plan,
    tuning: new UpstreamTuning(options.nowMs ?? Date.now),
    batches: new UpstreamBatches(options.nowMs ?? Date.now, runLine),
    messageBatches: new UpstreamMessageBatches(options.nowMs ?? Date.now, runMessage),
    live: new Set(),
  };
  const models = options.models ?? ["gpt-4o-mini"];
  let lastId = 0;

  function add(path: string, headers: Headers, body: string, batchId?: string): Served {
    lastId += 1;
    const served = recordOf(lastId, path, headers, body, state.nowMs());
    if (batchId !== undefined) served.batchId = batchId;
    ledger.add(served);
    return served;
  }

  async function runLine(path: string, request: JsonObject, batchId: string) {
    const body = JSON.stringify(request);
    const served = add(path, new Headers(), body, batchId);
    const answer = routeOf(path) ?? answerChat;
    const response = await answer(state, served, body, new AbortController().signal);
    const answered = await response.json().catch(() => ({ error: { message: "no answer" } }));
    return { status: response.status, body: asObject(answered) };
  }

  /** Messages know the behaviours to complete and to fail. */
  function runMessage(request: JsonObject, batchId: string | undefined) {
    const served = add("/v1/messages", new Headers(), JSON.stringify(request), batchId);
    const { do: behaviour, status: asked = 500 } = plan.next(served.model);
    const status = behaviour === "error" ? asked : 200;
    const body = status === 200 ? messageFor(String(served.id), request) : messageError(status);
    Object.assign(served, { behaviour, status, endedAtMs: state.nowMs(), finished: true });
    served.usageReported = body.usage;
    ledger.changed();
    return { status, body };
  }

  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: options.port ?? 0,
    reusePort: false,
    // Without it Bun prints each connection that is cut on purpose.
    development: false,
    idleTimeout: 0,
    maxRequestBodySize: LARGEST_REQUEST_BYTES,
    async fetch(request) {
      const url = new URL(request.url);
      const path = url.pathname;
      if (options.remoteControl === true && path.startsWith("/__")) {
        return answerControl(state, path, request);
      }
      if (request.method === "GET" && path.endsWith("/models")) return modelList(models);
      const isUpload = request.method === "POST" && path.endsWith("/files");
      const form = isUpload ? await request.formData() : undefined;
      const batched = await state.batches.answer(request, url, form);
      if (batched !== undefined) return batched ?? cutOff();
      const job = await answerBatchJob(state.batches, request, url);
      if (job !== undefined) return job ?? cutOff();
      const messaged = await state.messageBatches.answer(request, url);
      if (messaged !== undefined) return messaged ?? cutOff();
      const tuned = await state.tuning.answer(request, url, form);
      if (tuned !== undefined) return tuned ?? cutOff();
      if (request.method === "POST" && isTranscript(path)) return answerTranscript(request);
      const answer = request.method === "POST" ? routeOf(path) : null;
      if (answer === null) return refusal(404, `Invalid URL (${request.method} ${path})`);
      const body = await request.text();
      return answer(state, add(path, request.headers, body), body, request.signal);
    },
  });

  const port = server.port ?? 0;
  return {
    port,
    baseUrl: `http://127.0.0.1:${port}/v1`,
    served: ledger.list,
    servedOf: (wanted) => ledger.list.filter(({ model }) => model === wanted),
    totals: ledger.totals,
    until: ledger.until,
    behave: plan.behave,
    enqueue: plan.enqueue,
    tuning: state.tuning,
    batches: state.batches,
    messageBatches: state.messageBatches,
    reset() {
      plan.reset();
      state.tuning.reset();
      state.batches.reset();
      state.messageBatches.reset();
      ledger.clear();
    },
    async stop() {
      for (const pending of state.live) pending.abort();
      await server.stop(true);
    },
  };
}

function routeOf(path: string): typeof answerChat | null {
  if (path.endsWith("/chat/completions")) return answerChat;
  if (path.endsWith("/audio/speech")) return answerSpeech;
  return path.endsWith("/embeddings") ? answerEmbeddings : null;
}

/** An answer whose connection breaks before its end. */
function cutOff(): Response {
  const body = new ReadableStream({
    pull: (controller) => controller.error(undefined),
  });
  return new Response(body, { headers: JSON_BODY });
}

function modelList(models: string[]): Response {
  const data = models.map((id) => ({
    id,
    object: "model",
    created: 1_700_000_000,
    owned_by: "upstream",
  }));
  return Response.json({ object: "list", data });
}
