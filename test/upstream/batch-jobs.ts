import type { UpstreamBatches } from "./batches.ts";
import { asArray, asCount, asObject, asText, type JsonObject } from "./json.ts";

const STATUSES: Readonly<Record<string, string>> = {
  validating: "QUEUED",
  in_progress: "RUNNING",
  finalizing: "RUNNING",
  completed: "SUCCESS",
  failed: "FAILED",
  expired: "TIMEOUT_EXCEEDED",
  cancelling: "CANCELLATION_REQUESTED",
  cancelled: "CANCELLED",
};

/** Mistral's endpoints for batch jobs, as its reference has them, over the same batches and files. Undefined for others. */
export async function answerBatchJob(
  batches: UpstreamBatches,
  request: Request,
  url: URL,
): Promise<Response | null | undefined> {
  const [, rest] = /^\/v1\/batch\/jobs(.*)$/.exec(url.pathname) ?? [];
  if (rest === undefined) return undefined;
  const target = new URL(`/v1/batches${rest}`, url);
  if (request.method === "GET" && rest === "") return listed(batches, request, url, target);
  const { method, headers } = request;
  const sent = method === "POST" && rest === "" ? asObject(await request.json()) : undefined;
  const asked = new Request(target, {
    ...{ method, headers },
    ...(sent !== undefined && { body: JSON.stringify(asBatch(sent)) }),
  });
  const response = await batches.answer(asked, target, undefined);
  if (!response?.ok || !isJson(response)) return response;
  return Response.json(asJob(asObject(await response.json())));
}

/** Oldest first, in pages: what asks must not rely on an order that is stated nowhere. */
async function listed(
  batches: UpstreamBatches,
  request: Request,
  url: URL,
  target: URL,
): Promise<Response | null | undefined> {
  target.searchParams.set("limit", "1000000");
  const response = await batches.answer(new Request(target, request), target, undefined);
  if (!response?.ok) return response;
  const since = Date.parse(url.searchParams.get("created_after") ?? "") / 1_000;
  const jobs = asArray(asObject(await response.json()).data)
    .map((batch) => asJob(asObject(batch)))
    .filter(({ created_at: createdAt }) => !(asCount(createdAt) < since))
    .reverse();
  const size = asCount(Number(url.searchParams.get("page_size"))) || 100;
  const start = asCount(Number(url.searchParams.get("page"))) * size;
  const data = jobs.slice(start, start + size);
  return Response.json({ object: "list", data, total: jobs.length });
}

function isJson(response: Response): boolean {
  return response.headers.get("content-type")?.startsWith("application/json") === true;
}

function asBatch({ input_files: files, endpoint, metadata, model }: JsonObject): JsonObject {
  const input = asArray(files)[0];
  return { input_file_id: input, endpoint, completion_window: "24h", metadata, model };
}

function asJob(batch: JsonObject): JsonObject {
  const { id, endpoint, metadata, created_at: createdAt, errors, request_counts: counts } = batch;
  const { total, completed, failed } = asObject(counts);
  const message = asText(asObject(asArray(asObject(errors).data)[0]).message);
  return {
    ...{ id, object: "batch", endpoint, metadata, created_at: createdAt },
    status: STATUSES[asText(batch.status)],
    input_files: [batch.input_file_id],
    output_file: batch.output_file_id,
    error_file: batch.error_file_id,
    errors: message === "" ? [] : [{ message, count: 1 }],
    total_requests: total,
    completed_requests: asCount(completed) + asCount(failed),
    succeeded_requests: completed,
    failed_requests: failed,
  };
}
