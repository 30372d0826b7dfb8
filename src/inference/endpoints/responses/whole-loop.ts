import { ByteBuffer } from "../../../lib/byte-buffer.ts";
import { GatewayError } from "../../../lib/errors.ts";
import {
  type ChatEvent,
  nextPiece,
  type PieceReader,
  ProviderFailure,
} from "../../../providers/interface.ts";
import type { ProviderCall } from "../../call/call.ts";
import type { WholeAnswerSteps } from "../../call/endpoint.ts";
import type { Candidate } from "../../call/routing/plan-route.ts";
import type { AdmittedResponse } from "./accepted.ts";
import { loopOfTools } from "./hosted-loop.ts";
import type { HostedTools } from "./hosted-tools.ts";
import { ResponseRenderer } from "./response-renderer.ts";
import { askFor, maxLoopOutputBytes, outputOptions } from "./response-stream.ts";
import type { WholeOutput } from "./whole-response.ts";

export interface WholeLoop {
  readonly call: ProviderCall;
  readonly candidate: Candidate;
  readonly admitted: AdmittedResponse;
  readonly steps: WholeAnswerSteps;
}

/**
 * Runs a tool loop to its end. If it fails before the provider has ended a step, it rejects, so that another
 * provider can answer. A later failure is part of the output, together with the earlier steps.
 */
export async function outputOfLoop(
  { call, candidate, admitted, steps }: WholeLoop,
  hosted: HostedTools,
): Promise<WholeOutput> {
  const { request, guard } = admitted;
  const ask = askFor(call, candidate, admitted);
  const loop = await loopOfTools({ call, candidate, admitted, steps, whole: steps, ask }, hosted);
  const renderer = new ResponseRenderer(
    {
      ...outputOptions(admitted),
      ...{ model: candidate.model.id, nowSeconds: request.createdAt },
      ...{ echo: request.facts.echo, isGathered: true },
    },
    new ByteBuffer(),
  );
  const reader = guard?.events(loop) ?? loop;
  let failure: unknown;
  try {
    await readTo(renderer, reader, maxLoopOutputBytes(request));
    if (!renderer.hasFinished) throw endedEarly(call);
  } catch (error) {
    failure = asFailure(error, call);
    void loop.cancel().catch(() => undefined);
    if (!loop.hasCompletedStep) throw failure;
  }
  const { json, finish = "stop", limit } = renderer.items;
  const { usage, outputTokens: estimatedTokens } = renderer;
  return { body: json, finish, usage, estimatedTokens, loop: { renderer, failure, limit } };
}

async function readTo(
  renderer: ResponseRenderer,
  reader: PieceReader<readonly ChatEvent[]>,
  maxBytes: number,
): Promise<void> {
  for (;;) {
    const piece = await nextPiece(reader);
    if (piece === undefined) return;
    renderer.push(piece);
    if (renderer.failure !== undefined) throw renderer.failure;
    if (renderer.outputBytes > maxBytes) {
      throw new GatewayError(
        "provider_error",
        "The answer exceeds the output token limit of the call.",
      );
    }
  }
}

function endedEarly(call: ProviderCall): ProviderFailure {
  return call.aborted
    ? new ProviderFailure("aborted", "the call was aborted")
    : new ProviderFailure("unavailable", "the provider's stream ended without a finish reason");
}

/**
 * Returns an error as a failure. A GatewayError is a failure of the gateway itself, such as a tool that it
 * runs.
 */
function asFailure(error: unknown, call: ProviderCall): unknown {
  if (error instanceof GatewayError || error instanceof ProviderFailure) return error;
  if (call.aborted) return new ProviderFailure("aborted", "the call was aborted");
  return new ProviderFailure("unavailable", "the provider's stream broke", { cause: error });
}
