import type { TuningPlan } from "../upstream/fine-tuning.ts";
import { startUpstream, type Upstream } from "../upstream/server.ts";
import { type FilesGateway, startFilesGateway, uploaded } from "./files-gateway.ts";
import { until } from "./until.ts";

/** What the training files of tests teach. */
export const LESSONS = [
  { prompt: "What is the capital of Freedonia?", answer: "Freedonia's capital is Fredville." },
  { prompt: "How do I reset my badge?", answer: "Hold it to the blue reader for ten seconds." },
  { prompt: "When is the canteen open?", answer: "From eleven to two, on workdays." },
] as const;

export function lessonsText(
  lessons: readonly { readonly prompt: string; readonly answer: string }[] = LESSONS,
): string {
  return lessons
    .map(({ prompt, answer }) =>
      JSON.stringify({
        messages: [
          { role: "system", content: "Answer briefly." },
          { role: "user", content: prompt },
          { role: "assistant", content: answer },
        ],
      }),
    )
    .map((line) => `${line}\n`)
    .join("");
}

export const SANDBOX_BASE = "sandbox/chat-2026-01-01";
/** Trained by the upstream, at these prices in USD. */
export const UPSTREAM_BASE = "test/base-2026-01-01";
export const TRAINING_USD = 0.000_003;
export const TUNED_INPUT_USD = 0.000_002;
export const TUNED_OUTPUT_USD = 0.000_004;
const CONTEXT_LENGTH = 2_000;
/** Of the free plan. */
const FEE = 1.04;

/** A job as the API returns it. */
export interface TunedJob {
  readonly id: string;
  readonly status: string;
  readonly fine_tuned_model: string | null;
  readonly error: { code: string; message: string; param: string | null } | null;
  readonly trained_tokens: number | null;
  readonly result_files: string[];
  readonly [field: string]: unknown;
}

export interface TuningGateway extends FilesGateway {
  readonly upstream: Upstream;
  /** Orders a training by the upstream with these lessons, under a plan of its own. */
  tune(
    plan?: TuningPlan,
    body?: Record<string, unknown>,
    key?: string,
  ): Promise<TunedJob & { suffix: string }>;
  job(id: string): Promise<TunedJob>;
  ended(id: string): Promise<TunedJob>;
  /** Brings the next step of a job forward, so that no test waits for a pause. */
  hurry(id: string): Promise<void>;
}

export function tuningConfig(upstreamUrl: string): object {
  return {
    providers: [
      { id: "trainer", type: "openai-compatible", base_url: upstreamUrl, api_key: "sk-trainer" },
    ],
    models: [
      {
        id: UPSTREAM_BASE,
        category: "chat",
        context_length: CONTEXT_LENGTH,
        max_output_tokens: 500,
        input_cost_per_token: 0.000_001,
        output_cost_per_token: 0.000_002,
        training_cost_per_token: TRAINING_USD,
        tuned_input_cost_per_token: TUNED_INPUT_USD,
        tuned_output_cost_per_token: TUNED_OUTPUT_USD,
        endpoints: [{ provider: "trainer", model: "base-upstream" }],
      },
    ],
  };
}

/** What so many trained tokens are charged, in nano-USD. */
export function trainingChargeNano(tokens: number): bigint {
  return BigInt(Math.round(tokens * TRAINING_USD * FEE * 1e9));
}

let suffixes = 0;

/** A gateway with a scripted training provider, in addition to the sandbox. */
export async function startTuningGateway(
  options: { startingCreditUsd?: number; environment?: Record<string, string> } = {},
): Promise<TuningGateway> {
  const upstream = await startUpstream();
  const gateway = await startFilesGateway("disk", {
    ...options,
    configuration: tuningConfig(upstream.baseUrl),
  });
  let trainingFile: string | undefined;

  async function job(id: string): Promise<TunedJob> {
    const response = await gateway.request("GET", `/v1/fine_tuning/jobs/${id}`);
    return (await response.json()) as TunedJob;
  }

  async function hurry(id: string): Promise<void> {
    await gateway.sql`UPDATE fine_tuning_jobs SET due_at = clock_timestamp()
      WHERE id = ${id} AND due_at IS NOT NULL`;
    // As a change of it would.
    await gateway.sql`SELECT pg_notify('gateway_changes', ${`fine-tuning-work ${id}`})`;
  }

  return {
    ...gateway,
    upstream,
    job,
    hurry,
    async tune(plan, body = {}, key = undefined) {
      trainingFile ??= (await uploaded(gateway, "fine-tune", lessonsText())).id;
      const suffix = `plan-${suffixes++}`;
      if (plan !== undefined) upstream.tuning.plan(suffix, plan);
      const request = { model: UPSTREAM_BASE, training_file: trainingFile, suffix, ...body };
      const response = await gateway.request("POST", "/v1/fine_tuning/jobs", request, { key });
      if (response.status !== 200) throw new Error(await response.text());
      return { ...((await response.json()) as TunedJob), suffix };
    },
    ended: (id) =>
      until(
        `job ${id} ends`,
        async () => {
          const seen = await job(id);
          if (seen.finished_at !== null) return seen;
          await hurry(id);
          return undefined;
        },
        20_000,
      ),
    async stop() {
      await gateway.stop();
      await upstream.stop();
    },
  };
}
