import { clientClosed } from "../../lib/errors.ts";
import { explainFailure } from "../answer-headers.ts";
import type { AdmittedCall, CallOutcome } from "../call.ts";
import type { AcceptedRequest, StreamForm } from "../endpoint.ts";
import { type StreamDependencies, StreamRun } from "./streamed-answer.ts";

/**
 * A whole answer of several calls of a provider. It is a stream whose body leaves at its end, so that checkpoints
 * cover each call that was made, and a failure or a client that leaves behind the first one is charged for those.
 */
export async function gatheredAnswer<Request extends AcceptedRequest>(
  dependencies: StreamDependencies,
  form: StreamForm<Request>,
  admitted: AdmittedCall<Request>,
): Promise<CallOutcome> {
  // Of streams alone: a whole answer has all its time for its first event, and for each other.
  const { totalTimeoutMs } = dependencies;
  const timeouts = { firstTokenTimeoutMs: totalTimeoutMs, idleTimeoutMs: totalTimeoutMs };
  const run = new StreamRun({ ...dependencies, ...timeouts }, form, admitted);
  try {
    await run.open();
  } catch (error) {
    explainFailure(admitted, run.tries);
    throw error;
  }
  const body = await gathered(run.body(), admitted.clientSignal);
  // It has ended before its response leaves, with which it is reported.
  admitted.log.isDeferred = false;
  const blocked = admitted.guard?.block;
  if (blocked !== undefined) throw blocked;
  const headers = run.headers();
  headers["x-gateway-latency-ms"] = String(Math.round(performance.now() - admitted.startedMs));
  return { kind: "whole", headers, body };
}

/** Rejects where the client goes away, with which the stream ends itself. */
async function gathered(
  body: ReadableStream<Uint8Array>,
  clientSignal: AbortSignal,
): Promise<Uint8Array> {
  const reader = body.getReader();
  const onGone = () => void reader.cancel();
  clientSignal.addEventListener("abort", onGone);
  if (clientSignal.aborted) onGone();
  const pieces: Uint8Array[] = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      pieces.push(value);
    }
  } finally {
    clientSignal.removeEventListener("abort", onGone);
  }
  if (clientSignal.aborted) throw clientClosed();
  return Buffer.concat(pieces);
}
