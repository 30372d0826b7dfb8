import { asArray, asCount, asObject, asText, type JsonObject } from "./json.ts";
import { ENDED, PlannedBatches, type UpstreamBatch } from "./planned-batches.ts";

/** What a live call of a message is answered with. */
export type RunMessage = (
  body: JsonObject,
  batchId: string | undefined,
) => { status: number; body: JsonObject };

/** As Anthropic demands it. */
const CUSTOM_ID = /^[a-zA-Z0-9_-]{1,64}$/;

/** Anthropic's endpoints for messages and their batches, as its reference has them. */
export class UpstreamMessageBatches extends PlannedBatches {
  readonly #run: RunMessage;

  constructor(nowMs: () => number, run: RunMessage) {
    super(nowMs);
    this.#run = run;
  }

  /** Undefined where it is no request of these; null where the connection is to be cut. */
  async answer(request: Request, url: URL): Promise<Response | null | undefined> {
    if (url.pathname === "/v1/messages" && request.method === "POST") {
      const { status, body } = this.#run(asObject(await request.json()), undefined);
      return Response.json(body, { status });
    }
    const [, path] = /^\/v1\/messages\/batches\/?(.*)$/.exec(url.pathname) ?? [];
    if (path === undefined) return undefined;
    const [id = "", verb = ""] = path.split("/");
    if (id === "") return request.method === "POST" ? this.#create(request) : this.#list(url);
    const batch = this.records.batches.find((one) => one.id === id && !one.isDeleted);
    if (batch === undefined) return refusal(404, "not_found_error", `No batch ${id}.`);
    if (request.method === "DELETE") return this.#delete(batch);
    if (verb === "results") return this.#results(batch);
    return verb === "cancel" ? this.#cancel(batch) : this.#read(batch);
  }

  async #create(request: Request): Promise<Response | null> {
    const body = asObject(await request.json());
    const trouble = this.trouble();
    if (trouble === "refuse")
      return refusal(400, "invalid_request_error", "requests: Field required");
    if (trouble === "unauthorized")
      return refusal(401, "authentication_error", "invalid x-api-key");
    if (trouble === "busy") return refusal(429, "rate_limit_error", "Too many batch requests");
    const requests = asArray(body.requests).map((one) => {
      const { custom_id: id, params } = asObject(one);
      return { id: asText(id), url: "/v1/messages", body: asObject(params) };
    });
    const ids = new Set(requests.map(({ id }) => id));
    if (requests.length === 0 || ids.size < requests.length) {
      return refusal(400, "invalid_request_error", "requests: custom_id is not unique");
    }
    if ([...ids].some((id) => !CUSTOM_ID.test(id))) {
      return refusal(400, "invalid_request_error", "requests.0.custom_id: wrong pattern");
    }
    const id = `msgbatch_${this.records.batches.length + 1}`;
    const batch = this.add({ id, request: {}, requests }, request.headers);
    await this.stalled("create");
    if (trouble === "cut") return null;
    return Response.json(trouble === "garbage" ? { type: "nothing" } : this.#shapeOf(batch));
  }

  /** Newest first, by `after_id` and `limit`. */
  #list(url: URL): Response {
    if (this.current.lists === "lacking") return refusal(404, "not_found_error", "Not found");
    if (this.current.lists === "unavailable") return refusal(529, "overloaded_error", "Overloaded");
    const all = this.records.batches.filter(({ isDeleted }) => !isDeleted).toReversed();
    const after = url.searchParams.get("after_id");
    const start = after === null ? 0 : all.findIndex(({ id }) => id === after) + 1;
    const page = all.slice(start, start + (asCount(Number(url.searchParams.get("limit"))) || 20));
    return Response.json({
      data: page.map((batch) => this.#shapeOf(batch)),
      has_more: start + page.length < all.length,
      first_id: page[0]?.id ?? null,
      last_id: page.at(-1)?.id ?? null,
    });
  }

  async #read(batch: UpstreamBatch): Promise<Response> {
    await this.stalled("read");
    if (this.current.read === "lost") return refusal(404, "not_found_error", "No such batch");
    if (this.current.read === "garbage") return new Response("<html>");
    if (this.current.read === "unavailable") return refusal(529, "overloaded_error", "Overloaded");
    const shape = this.#shapeOf(batch);
    batch.reads += 1;
    return Response.json(shape);
  }

  async #cancel(batch: UpstreamBatch): Promise<Response> {
    if (this.#isEnded(batch)) {
      return refusal(400, "invalid_request_error", "Batch has already ended.");
    }
    batch.isCancelled = true;
    batch.reads = 0;
    await this.stalled("cancel");
    return Response.json(this.#shapeOf(batch));
  }

  #delete(batch: UpstreamBatch): Response {
    if (!this.#isEnded(batch)) {
      return refusal(400, "invalid_request_error", "Batch has not ended.");
    }
    batch.isDeleted = true;
    return Response.json({ id: batch.id, type: "message_batch_deleted" });
  }

  async #results(batch: UpstreamBatch): Promise<Response> {
    if (!this.#isEnded(batch)) {
      return refusal(400, "invalid_request_error", "Batch has no available results.");
    }
    batch.resultsRead += 1;
    await this.stalled("results");
    this.#finish(batch);
    const unknown = { custom_id: "none", result: { type: "canceled" } };
    return this.sentResults(batch.results ?? "", JSON.stringify(unknown));
  }

  #isEnded(batch: UpstreamBatch): boolean {
    return ENDED.includes(this.statusOf(batch));
  }

  #shapeOf(batch: UpstreamBatch): JsonObject {
    const isEnded = this.#isEnded(batch);
    if (isEnded) this.#finish(batch);
    const counts: Record<string, number> = {
      ...{ processing: 0, succeeded: 0, errored: 0, canceled: 0, expired: 0 },
    };
    if (!isEnded) counts.processing = batch.requests.length;
    for (const line of (batch.results ?? "").split("\n").slice(0, -1)) {
      counts[asText(asObject(JSON.parse(line).result).type)]! += 1;
    }
    const createdAt = new Date(batch.createdAtMs).toISOString();
    return {
      id: batch.id,
      type: "message_batch",
      processing_status: isEnded ? "ended" : batch.isCancelled ? "canceling" : "in_progress",
      request_counts: counts,
      created_at: createdAt,
      expires_at: new Date(batch.createdAtMs + 86_400_000).toISOString(),
      ended_at: isEnded ? createdAt : null,
      archived_at: null,
      cancel_initiated_at: batch.isCancelled ? createdAt : null,
      // The gateway must ask nothing there: the provider chooses the address.
      results_url: isEnded ? "http://127.0.0.1:1/results" : null,
    };
  }

  /** Runs the requests, once; the last ones come first in the results. */
  #finish(batch: UpstreamBatch): void {
    if (batch.results !== null) return;
    const run = this.runOf(batch);
    const type = this.statusOf(batch) === "expired" ? "expired" : "canceled";
    const lines = batch.requests.map(({ id, body }, at) => {
      const result = at < run ? this.#resultOf(body, batch.id) : { type };
      return `${JSON.stringify({ custom_id: id, result })}\n`;
    });
    batch.results = lines.reverse().join("");
  }

  #resultOf(params: JsonObject, batchId: string): JsonObject {
    const { status, body } = this.#run(params, batchId);
    if (status >= 400) return { type: "errored", error: { ...body, request_id: null } };
    const message = this.current.body === undefined ? body : JSON.parse(this.current.body);
    return { type: "succeeded", message };
  }
}

const ERROR_TYPES: Readonly<Record<number, string>> = {
  400: "invalid_request_error",
  429: "rate_limit_error",
  500: "api_error",
  529: "overloaded_error",
};

export function messageError(status: number): JsonObject {
  const type = ERROR_TYPES[status] ?? "api_error";
  return { type: "error", error: { type, message: `refused with ${status}` } };
}

/** Echoes the last message; a token is four characters, and the first three of a prompt came from a cache. */
export function messageFor(id: string, request: JsonObject): JsonObject {
  const { content } = asObject(asArray(request.messages).at(-1));
  const parts = asArray(content).map((part) => asText(asObject(part).text));
  const text = `Echo: ${asText(content)}${parts.join("")}`;
  return {
    id: `msg_${id}`,
    type: "message",
    role: "assistant",
    model: request.model,
    content: [{ type: "text", text }],
    stop_reason: "end_turn",
    stop_sequence: null,
    usage: {
      input_tokens: Math.ceil(JSON.stringify(request.messages).length / 4),
      cache_read_input_tokens: 3,
      cache_creation_input_tokens: 0,
      output_tokens: Math.ceil(text.length / 4),
    },
  };
}

function refusal(status: number, type: string, message: string): Response {
  return Response.json({ type: "error", error: { type, message } }, { status });
}
