import { join } from "node:path";
import { steadyClock } from "../../src/lib/clock.ts";
import type { Behaviour } from "../upstream/behaviours.ts";
import type { BatchPlan, BatchRecords } from "../upstream/planned-batches.ts";
import type { Served } from "../upstream/served.ts";

export interface UpstreamProcess {
  readonly pid: number;
  /** Ends in `/v1`. */
  readonly baseUrl: string;
  behave(model: string, behaviour: Behaviour): Promise<void>;
  /** How batches go from now on. */
  planBatches(plan: BatchPlan): Promise<void>;
  batches(): Promise<BatchRecords>;
  /**
   * What was served since the last call; batches are forgotten with it. Times of marks are by this process's clock, or
   * earlier.
   */
  takeServed(): Promise<Served[]>;
  /** How many calls of this model there were since then. */
  countCalls(model: string): Promise<number>;
  stop(): Promise<void>;
}

/** The replaying upstream in a process of its own, which outlives every gateway that is killed. */
export async function startUpstreamProcess(): Promise<UpstreamProcess> {
  const script = join(import.meta.dir, "..", "upstream", "main.ts");
  const child = Bun.spawn([process.execPath, script], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const { base_url: baseUrl } = JSON.parse(await firstLine(child.stdout)) as { base_url: string };
  const controlUrl = baseUrl.replace(/\/v1$/, "");
  const behaviours = new Map<string, Behaviour>();
  const post = async (path: string, body: unknown): Promise<void> => {
    const response = await fetch(controlUrl + path, { method: "POST", body: JSON.stringify(body) });
    if (!response.ok) throw new Error(`${path}: ${await response.text()}`);
  };
  const behave = async (model: string, behaviour: Behaviour): Promise<void> => {
    behaviours.set(model, behaviour);
    await post("/__behave", { model, behaviour });
  };
  return {
    pid: child.pid,
    baseUrl,
    behave,
    planBatches: (plan) => post("/__batches", plan),
    async batches() {
      return (await (await fetch(`${controlUrl}/__batches`)).json()) as BatchRecords;
    },
    async takeServed() {
      const askedMs = steadyClock.nowMs();
      const answer = await (await fetch(`${controlUrl}/__served`)).json();
      const { now_ms: nowMs, served } = answer as { now_ms: number; served: Served[] };
      const mostAheadMs = nowMs - askedMs;
      for (const mark of served.flatMap(({ contentMarks }) => contentMarks)) {
        mark.atMs -= mostAheadMs;
      }
      await post("/__reset", {});
      for (const [model, behaviour] of behaviours) await behave(model, behaviour);
      return served;
    },
    async countCalls(model) {
      const { totals } = await (await fetch(`${controlUrl}/__served`)).json();
      return totals[model]?.requests ?? 0;
    },
    async stop() {
      child.kill("SIGKILL");
      await child.exited;
    },
  };
}

async function firstLine(stream: ReadableStream<Uint8Array>): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const bytes of stream) {
    text += decoder.decode(bytes, { stream: true });
    const end = text.indexOf("\n");
    if (end >= 0) return text.slice(0, end);
  }
  throw new Error(`the upstream ended without a word: ${text}`);
}
