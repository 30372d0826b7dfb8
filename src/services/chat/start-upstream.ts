import { type ChatAnswer, ProviderFailure } from "../../providers/interface.ts";
import type { Candidate } from "../routing/plan-route.ts";
import { StreamRewriter } from "./stream-rewriter.ts";

export interface StartedUpstream {
  readonly reader: ReadableStreamDefaultReader<Uint8Array>;
  readonly rewriter: StreamRewriter;
  /** The first event, rewritten. */
  readonly firstOutput: string;
}

export interface UpstreamStart {
  readonly body: Record<string, unknown>;
  readonly requestId: string;
  readonly hidesReasoning: boolean;
  readonly nowSeconds: number;
  readonly controller: AbortController;
  /** True where the controller was aborted because the first event did not come in time. */
  isExpired(): boolean;
}

/** Events without content, kept back until some comes, may take this much. */
const MAX_HELD_BACK_BYTES = 65_536;

/** Calls a provider and waits for its first event. Throws ProviderFailure where there is none. */
export async function startUpstream(
  candidate: Candidate,
  start: UpstreamStart,
): Promise<StartedUpstream> {
  const { requestId, controller } = start;
  let reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  try {
    const answer = await candidate.provider.chat({
      model: candidate.upstreamModel,
      body: start.body,
      stream: true,
      requestId,
      signal: controller.signal,
    });
    reader = streamOf(answer).getReader();
    const rewriter = new StreamRewriter({
      id: `chatcmpl-${requestId.slice(4)}`,
      model: candidate.model.id,
      hidesReasoning: start.hidesReasoning,
      nowSeconds: start.nowSeconds,
    });
    const firstOutput = await firstEvent(reader, rewriter);
    return { reader, rewriter, firstOutput };
  } catch (error) {
    reader?.cancel().catch(() => {});
    if (start.isExpired()) {
      throw new ProviderFailure("timeout", "the provider sent no first event in time");
    }
    if (error instanceof ProviderFailure) throw error;
    if (controller.signal.aborted) throw new ProviderFailure("aborted", "the call was aborted");
    throw new ProviderFailure("unavailable", "the provider's stream broke before its first event", {
      cause: error,
    });
  }
}

function streamOf(answer: ChatAnswer): ReadableStream<Uint8Array> {
  if (answer.kind === "stream") return answer.body;
  throw new ProviderFailure("unavailable", "the provider did not stream");
}

/**
 * Reads until the answer has begun. A role alone is held back: behind it nothing has been said yet, so
 * that another provider can still take over.
 */
async function firstEvent(
  reader: ReadableStreamDefaultReader<Uint8Array>,
  rewriter: StreamRewriter,
): Promise<string> {
  let output = "";
  for (;;) {
    const { done, value } = await reader.read();
    output += done ? rewriter.end() : rewriter.push(value);
    if (rewriter.hasBegun || output.length > MAX_HELD_BACK_BYTES) return output;
    if (rewriter.failure) throw rewriter.failure;
    if (done || rewriter.isDone) {
      throw new ProviderFailure(
        "unavailable",
        "the provider's stream ended before its first event",
      );
    }
  }
}
