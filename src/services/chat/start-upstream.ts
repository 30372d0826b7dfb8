import type { CallAbort } from "../../providers/call-abort.ts";
import { type ChatAnswer, type PieceReader, ProviderFailure } from "../../providers/interface.ts";
import type { Candidate } from "../routing/plan-route.ts";
import { ProviderCall } from "./provider-call.ts";
import { StreamRewriter } from "./stream-rewriter.ts";

export interface StartedUpstream {
  readonly reader: PieceReader;
  readonly rewriter: StreamRewriter;
  /** The first event, rewritten. */
  readonly firstOutput: string;
}

/** A try, and the stream that may come of it. */
export interface StreamAttempt {
  readonly abort: CallAbort;
  /** True where it was aborted because the first event did not come in time. */
  isExpired: boolean;
}

export interface UpstreamStart {
  readonly body: Record<string, unknown>;
  readonly requestId: string;
  readonly hidesReasoning: boolean;
  readonly nowSeconds: number;
  readonly attempt: StreamAttempt;
}

/** Events without content, kept back until some comes, may take this much. */
const MAX_HELD_BACK_BYTES = 65_536;

/** Calls a provider and waits for its first event. Throws ProviderFailure where there is none. */
export async function startUpstream(
  candidate: Candidate,
  start: UpstreamStart,
): Promise<StartedUpstream> {
  const { requestId, attempt } = start;
  let reader: PieceReader | undefined;
  try {
    const call = new ProviderCall(candidate.upstreamModel, start.body, requestId, attempt.abort);
    reader = readerOf(await candidate.provider.chat(call));
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
    if (attempt.isExpired) {
      throw new ProviderFailure("timeout", "the provider sent no first event in time");
    }
    if (error instanceof ProviderFailure) throw error;
    if (attempt.abort.aborted) throw new ProviderFailure("aborted", "the call was aborted");
    throw new ProviderFailure("unavailable", "the provider's stream broke before its first event", {
      cause: error,
    });
  }
}

function readerOf(answer: ChatAnswer): PieceReader {
  if (answer.kind === "stream") return answer.reader?.() ?? answer.body.getReader();
  throw new ProviderFailure("unavailable", "the provider did not stream");
}

/**
 * Reads until the answer has begun. A role alone is held back: behind it nothing has been said yet, so
 * that another provider can still take over.
 */
async function firstEvent(reader: PieceReader, rewriter: StreamRewriter): Promise<string> {
  let output = "";
  for (;;) {
    const piece = reader.take?.();
    const { done, value } =
      piece === undefined ? await reader.read() : { done: false, value: piece };
    output += done ? rewriter.end() : rewriter.push(value!);
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
