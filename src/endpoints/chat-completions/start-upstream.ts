import { ProviderCall } from "../../calls/call.ts";
import type { Candidate } from "../../calls/routing/plan-route.ts";
import { GatewayError } from "../../lib/errors.ts";
import { GrowingBytes } from "../../lib/growing-bytes.ts";
import { nextPiece, type PieceReader, ProviderFailure } from "../../providers/interface.ts";
import type { StreamedAnswer } from "../../providers/streamed-answer.ts";
import { completionId, type OpenedAnswer, openAnswer } from "./render-answer.ts";

export interface StartedUpstream extends OpenedAnswer {
  /** What the rewriter adds to, with the first event in it. */
  readonly output: GrowingBytes;
}

/** A try, and the stream that may result. */
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
  let reader: PieceReader<unknown> | undefined;
  try {
    const answer = await candidate.provider.chat!(attempt);
    const output = new GrowingBytes();
    const options = {
      id: completionId(attempt.requestId),
      model: candidate.model.id,
      hidesReasoning: start.hidesReasoning,
      nowSeconds: start.nowSeconds,
    };
    const opened = openAnswer(answer, options, output);
    const { rewriter } = opened;
    reader = opened.reader;
    // A role alone is held back: behind it nothing has been said yet, so that another provider can still
    // take over.
    for (;;) {
      const piece = await nextPiece(reader);
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
    // A GatewayError tells why the gateway itself could not call the provider.
    if (error instanceof ProviderFailure || error instanceof GatewayError) throw error;
    if (attempt.aborted) throw new ProviderFailure("aborted", "the call was aborted");
    throw new ProviderFailure("unavailable", "the provider's stream broke before its first event", {
      cause: error,
    });
  }
}

function assertGoesOn(rewriter: StreamedAnswer, piece: unknown): void {
  if (rewriter.failure) throw rewriter.failure;
  if (piece !== undefined && !rewriter.isDone) return;
  throw new ProviderFailure("unavailable", "the provider's stream ended before its first event");
}
