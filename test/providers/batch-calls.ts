import { type Clock, systemClock } from "../../src/lib/clock.ts";
import type {
  BatchOfResults,
  BatchRequest,
  BatchResult,
  NewBatch,
  ProviderBatches,
} from "../../src/providers/batches.ts";
import { ShortBody } from "../../src/providers/chat-body.ts";
import { ProviderFailure, type ProviderSettings } from "../../src/providers/interface.ts";
import { createProviders, type ProviderDependencies } from "../../src/providers/registry.ts";
import type { AnswerThread } from "../../src/providers/thread-work.ts";
import { createHttpClient } from "../../src/providers/transport/http-client.ts";

export const BATCH_KEY = "sk-batch-0123456789";
export const MARK = "gwb_0123456789";
const HALF_PRICE = 5_000;

/** The batch interface of a provider of that type at that address. */
export function batchesAt(
  type: string,
  baseUrl: string,
  {
    clock = systemClock,
    workThread,
    ...settings
  }: { clock?: Clock; workThread?: AnswerThread } & Partial<ProviderSettings> = {},
): ProviderBatches {
  const entry = {
    ...{ id: "p", type, baseUrl, apiKey: BATCH_KEY, connectTimeoutMs: 5_000 },
    batchPriceShare: HALF_PRICE,
    ...settings,
  };
  const httpClient = createHttpClient({ clock });
  const dependencies = { clock, workThread, httpClient, providerFactories: {} };
  const providers = createProviders([entry], dependencies as unknown as ProviderDependencies);
  const { batches } = providers.get("p")!;
  if (batches === undefined) throw new Error(`a provider of type ${type} has no batches`);
  return batches;
}

const never = new AbortController().signal;

/** What a chat with that prompt is in a batch. */
export function chatRequest(
  batches: ProviderBatches,
  model: string,
  prompt: string,
  fields: Record<string, unknown> = {},
): Promise<BatchRequest | undefined> {
  return batches.request((provider) =>
    provider.chat!({
      ...{ model, requestId: "req_1", signal: never, stream: false },
      body: new ShortBody({ model, messages: [{ role: "user", content: prompt }], ...fields }),
    }),
  );
}

/** A batch of a chat for each prompt; the ids are its place, from 0. */
export async function chatBatch(
  batches: ProviderBatches,
  model: string,
  prompts: readonly string[],
  mark = MARK,
): Promise<NewBatch> {
  const requests = await Promise.all(prompts.map((prompt) => chatRequest(batches, model, prompt)));
  async function* all() {
    for (const [at, request] of requests.entries()) yield { id: String(at), body: request!.body };
  }
  return { mark, kind: requests[0]!.kind, model, requests: all() };
}

export function ofResults(batchId: string, count: number, mark = MARK): BatchOfResults {
  return { batchId, mark, ids: new Set(Array.from({ length: count }, (_, at) => String(at))) };
}

/** What could be read, and what the reading failed with. */
export async function resultsOf(
  batches: ProviderBatches,
  batch: BatchOfResults,
  signal = never,
): Promise<{ results: BatchResult[]; failure?: ProviderFailure }> {
  const results: BatchResult[] = [];
  try {
    for await (const result of batches.results(batch, signal)) results.push(result);
  } catch (error) {
    if (!(error instanceof ProviderFailure)) throw error;
    return { results, failure: error };
  }
  return { results };
}

/** The answer of a line to a chat, as the endpoint for chats gets it. */
export async function chatAnswer(batches: ProviderBatches, result: BatchResult, model: string) {
  if ("failure" in result) throw result.failure;
  const answer = await batches.answering(result.answer).chat!({
    ...{ model, requestId: "req_1", signal: never, stream: false },
    body: new ShortBody({ model, messages: [{ role: "user", content: "hello" }], max_tokens: 9 }),
  });
  return answer;
}

export async function failureOf(call: Promise<unknown>): Promise<ProviderFailure> {
  const error = await call.catch((thrown: unknown) => thrown);
  if (error instanceof ProviderFailure) return error;
  throw new Error(`no failure: ${error}`);
}
