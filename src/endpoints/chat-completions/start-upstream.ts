import type { Candidate } from "../../calls/routing/plan-route.ts";
import { GrowingBytes } from "../../lib/growing-bytes.ts";
import { type ChatAnswer, type PieceReader, ProviderFailure } from "../../providers/interface.ts";
import {
  type RewriterOptions,
  StreamRewriter,
} from "../../providers/openai/chat/stream-rewriter.ts";
import { ProviderCall } from "./provider-call.ts";

export interface StartedUpstream {
  readonly reader: PieceReader;
  readonly rewriter: StreamRewriter;
  /** What the rewriter adds to, with the first event in it. */
  readonly output: GrowingBytes;
}

/** A try, and the stream that may come of it. */
export class StreamAttempt extends ProviderCall implements EventListenerObject {
  /** True where it was aborted because the first event did not come in time. */
  isExpired = false;

  /** The abort of all attempts. */
  handleEvent(): void {
    this.abort();
  }
}

export interface UpstreamStart {
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
  const { attempt } = start;
  let reader: PieceReader | undefined;
  try {
    const answer = await candidate.provider.chat!(attempt);
    reader = readerOf(answer);
    const output = new GrowingBytes();
    const rewriter = new StreamRewriter(
      {
        id: `chatcmpl-${attempt.requestId.slice(4)}`,
        model: candidate.model.id,
        hidesReasoning: start.hidesReasoning,
        nowSeconds: start.nowSeconds,
        failureOf: failureReaderOf(answer),
      },
      output,
    );
    // A role alone is held back: behind it nothing has been said yet, so that another provider can still
    // take over.
    for (;;) {
      const piece = reader.take?.() ?? (await reader.read()).value;
      if (piece === undefined) rewriter.end();
      else rewriter.push(piece);
      if (rewriter.hasBegun || output.length > MAX_HELD_BACK_BYTES) {
        return { reader, rewriter, output };
      }
      assertGoesOn(rewriter, piece);
    }
  } catch (error) {
    reader?.cancel().catch(() => {});
    if (attempt.isExpired) {
      throw new ProviderFailure("timeout", "the provider sent no first event in time");
    }
    if (error instanceof ProviderFailure) throw error;
    if (attempt.aborted) throw new ProviderFailure("aborted", "the call was aborted");
    throw new ProviderFailure("unavailable", "the provider's stream broke before its first event", {
      cause: error,
    });
  }
}

function readerOf(answer: ChatAnswer): PieceReader {
  if (answer.kind === "stream") return answer.reader?.() ?? answer.body.getReader();
  throw new ProviderFailure("unavailable", "the provider did not stream");
}

function failureReaderOf(answer: ChatAnswer): RewriterOptions["failureOf"] {
  if (answer.kind !== "stream" || answer.failureOf === undefined) return undefined;
  return (event) => answer.failureOf!(event);
}

function assertGoesOn(rewriter: StreamRewriter, piece: Uint8Array | undefined): void {
  if (rewriter.failure) throw rewriter.failure;
  if (piece !== undefined && !rewriter.isDone) return;
  throw new ProviderFailure("unavailable", "the provider's stream ended before its first event");
}
