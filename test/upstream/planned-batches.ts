import type { JsonObject } from "./json.ts";

/** How batches go; looked up at every request, so that it can be changed under way. */
export interface BatchPlan {
  /** How often a batch is read in each of these states before it goes on to the next. */
  validatingReads?: number;
  runningReads?: number;
  finalizingReads?: number;
  /** What becomes of it then; with `never` it stays in progress. */
  outcome?: "completed" | "failed" | "expired" | "never";
  /** It takes a cancel, and goes on as it was. */
  ignoresCancel?: boolean;
  /** How many of its requests, the first ones, are run where it is cancelled or expires. */
  answered?: number;
  /** With the outcome `failed`. */
  failure?: { code: string; message: string };
  /** What becomes of creating: made but never answered, answered with what is no batch, refused. */
  create?: "cut" | "garbage" | "refuse" | "unauthorized" | "busy";
  /** For how many creations that holds; for all unless told otherwise. */
  createTimes?: number;
  /** What becomes of uploads: kept but never answered, or refused. */
  upload?: "cut" | "refuse";
  /** What reading a batch gives instead of it. */
  read?: "lost" | "garbage" | "unavailable";
  /**
   * What of the results is not as it should be: cut behind the first half, a line that is no JSON among them, lines of
   * requests that the batch does not have, each line twice, half of them, a line or lines without an end, a byte from
   * time to time.
   */
  results?:
    | "cut"
    | "garbage"
    | "unknown"
    | "twice"
    | "half"
    | "endless-line"
    | "endless-lines"
    | "endless-blanks"
    | "trickle"
    | "silent";
  /** Replaces the response's body of every line, as JSON text. */
  body?: string;
  /** What is done, but not answered while this plan stands. */
  stall?: "upload" | "create" | "read" | "results" | "cancel";
  /** Batches and files are not listed, or there is no answer to it for now. */
  lists?: "lacking" | "unavailable";
}

export interface BatchFile {
  id: string;
  filename: string;
  content: string;
  form: Record<string, string>;
  isDeleted: boolean;
}

export interface UpstreamBatch {
  id: string;
  /** As it was asked for. */
  request: JsonObject;
  headers: Record<string, string>;
  /** Of its lines. */
  requests: { id: string; url: string; body: JsonObject }[];
  reads: number;
  createdAtMs: number;
  isCancelled: boolean;
  /** Once it has ended: a text of lines. */
  results: string | null;
  resultsRead: number;
  /** Anthropic's. */
  isDeleted: boolean;
}

/** JSON, so that it can be sent from a separate process. */
export interface BatchRecords {
  files: BatchFile[];
  batches: UpstreamBatch[];
}

const STALL_POLL_MS = 10;
const TRICKLE_MS = 20;
/** States in which nothing more happens. */
export const ENDED = ["completed", "failed", "expired", "cancelled"];

/** What batches of all providers have in common here: their plan and their records. */
export abstract class PlannedBatches {
  readonly records: BatchRecords = { files: [], batches: [] };
  protected current: BatchPlan = {};
  #created = 0;
  protected readonly nowMs: () => number;

  constructor(nowMs: () => number) {
    this.nowMs = nowMs;
  }

  /** From now on, for all batches. */
  plan(plan: BatchPlan): void {
    this.current = plan;
    this.#created = 0;
  }

  reset(): void {
    this.records.files = [];
    this.records.batches = [];
    this.plan({});
  }

  protected add(
    batch: Pick<UpstreamBatch, "id" | "request" | "requests">,
    headers: Headers,
  ): UpstreamBatch {
    const added: UpstreamBatch = {
      ...batch,
      headers: Object.fromEntries(headers),
      reads: 0,
      createdAtMs: this.nowMs(),
      isCancelled: false,
      results: null,
      resultsRead: 0,
      isDeleted: false,
    };
    this.records.batches.push(added);
    return added;
  }

  protected trouble(): BatchPlan["create"] {
    const { create, createTimes = Number.POSITIVE_INFINITY } = this.current;
    this.#created += 1;
    return this.#created <= createTimes ? create : undefined;
  }

  protected async stalled(what: BatchPlan["stall"]): Promise<void> {
    while (this.current.stall === what) await Bun.sleep(STALL_POLL_MS);
  }

  /** In OpenAI's words. */
  protected statusOf({ reads, isCancelled, results }: UpstreamBatch): string {
    const {
      validatingReads = 0,
      runningReads = 1,
      finalizingReads = 0,
      outcome = "completed",
      ignoresCancel = false,
    } = this.current;
    if (isCancelled && !ignoresCancel)
      return results === null && reads < 1 ? "cancelling" : "cancelled";
    if (reads < validatingReads) return "validating";
    if (outcome === "never" || reads < validatingReads + runningReads) return "in_progress";
    const isFinal = reads >= validatingReads + runningReads + finalizingReads;
    return isFinal ? outcome : "finalizing";
  }

  /** How many of its requests are run in all. */
  protected runOf(batch: UpstreamBatch): number {
    const { answered } = this.current;
    if (this.statusOf(batch) === "completed") return batch.requests.length;
    return Math.min(answered ?? 0, batch.requests.length);
  }

  /** Results as they are sent. */
  protected sentResults(text: string, unknown: string): Response {
    const lines = text.split("\n").filter((line) => line !== "");
    const half = Math.ceil(lines.length / 2);
    const sent = (these: string[]) =>
      new Response(these.map((line) => `${line}\n`).join(""), {
        headers: { "content-type": "application/x-jsonl" },
      });
    switch (this.current.results) {
      case "cut": {
        const bytes = new TextEncoder().encode(text);
        return endless(bytes.subarray(0, Math.ceil(bytes.length / 2)), undefined);
      }
      case "garbage":
        return sent([...lines.slice(0, half), '{"garbage', ...lines.slice(half)]);
      case "unknown":
        return sent([unknown, ...lines, unknown]);
      case "twice":
        return sent(lines.flatMap((line) => [line, line]));
      case "half":
        return sent(lines.slice(0, half));
      case "endless-line":
        return endless(new Uint8Array(262_144).fill(0x61), 0);
      case "endless-lines":
        return endless(new TextEncoder().encode(`${unknown}\n`.repeat(100)), 0);
      case "endless-blanks":
        return endless(new Uint8Array(262_144).fill(0x0a), 0);
      case "trickle":
        return endless(new TextEncoder().encode(" "), TRICKLE_MS);
      case "silent":
        return endless(new TextEncoder().encode(" "), Number.POSITIVE_INFINITY);
      default:
        return sent(lines);
    }
  }
}

/** The same bytes again and again, or once before the connection breaks. */
function endless(bytes: Uint8Array, everyMs: number | undefined): Response {
  let sent = 0;
  let isOver = false;
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      if (everyMs === undefined && sent > 0) return controller.error(undefined);
      if (everyMs === Number.POSITIVE_INFINITY && sent > 0) return new Promise(() => {});
      if (everyMs !== undefined) await Bun.sleep(everyMs);
      sent += 1;
      if (!isOver) controller.enqueue(bytes.slice());
    },
    cancel() {
      isOver = true;
    },
  });
  return new Response(body, { headers: { "content-type": "application/x-jsonl" } });
}
