import { GatewayError } from "../../../lib/errors.ts";
import { NO_TOKENS, usageOfCalls } from "../../../lib/usage.ts";
import type { ChatEvent, PieceReader } from "../../../providers/interface.ts";
import { type ProviderCall, sentLimit } from "../../call/call.ts";
import {
  type EarlierSteps,
  type StepMoney,
  stepBound,
  type WholeAnswerSteps,
} from "../../call/endpoint.ts";
import type { Candidate } from "../../call/routing/plan-route.ts";
import type { AddedMessage } from "../../tools/added-messages.ts";
import { type LoopModel, type LoopState, ToolLoop } from "../../tools/tool-loop.ts";
import {
  costBound,
  estimatedPromptTokens,
  type PromptSize,
  promptSize,
} from "../chat-completions/cost-bound.ts";
import type { AddedParts } from "../chat-completions/provider-body.ts";
import type { AdmittedResponse } from "./accepted.ts";
import { bothSizes, type HostedTools, type OpenHosted } from "./hosted-tools.ts";

type Events = PieceReader<readonly ChatEvent[]>;

/** Maximum bytes of an output token. The spare bytes are for the items around the tokens. */
const MAX_BYTES_PER_TOKEN = 64;
const SPARE_BYTES = 65_536;

interface LoopCall {
  readonly call: ProviderCall;
  readonly candidate: Candidate;
  readonly admitted: AdmittedResponse;
  readonly steps: StepMoney;
  /** The steps of an answer that is sent complete. Absent for a stream. */
  readonly whole?: WholeAnswerSteps;
  /** `onNewConnection` replaces that of the call, if it is set. */
  ask(
    outputTokens: number | undefined,
    added: AddedParts,
    onNewConnection?: boolean,
  ): Promise<Events>;
}

/**
 * Opens a candidate's answer to a request whose tools the gateway runs. A complete answer continues from the
 * steps of an earlier call with its idempotency key. Rejects like the candidate.
 */
export async function loopOfTools(parts: LoopCall, hosted: HostedTools): Promise<ToolLoop> {
  const { call, candidate, admitted, steps, whole } = parts;
  const { requestId, hold } = admitted;
  const { organizationId, keyId } = hold;
  const { signal } = call;
  const earlier = whole?.earlier(candidate);
  const opening = { organizationId, keyId, requestId, signal };
  // The earlier steps already include the approved calls of remote tools.
  const opened = await hosted.open(opening, { runsApproved: earlier === undefined });
  const beginning =
    earlier === undefined ? firstOf(parts, opened, hosted) : continueFrom(parts, earlier);
  const { first, state } = await beginning.catch((error) => {
    hosted.close();
    throw error;
  });
  return new ToolLoop(first, {
    ...{ organizationId, keyId, requestId, signal, holdsFirstStep: whole !== undefined },
    earlier: state,
    ...(whole !== undefined && { saveState: (reached) => whole.store(candidate, reached) }),
    trace: admitted.log.trace,
    firstSpan: call.span,
    model: modelOf(parts, opened),
    tools: opened.tools,
    items: opened.items,
    messages: opened.messages,
    close: () => hosted.close(),
    steps,
    maxRuns: hosted.maxRuns,
    maxStepBytes: candidate.terms.maxOutputTokens * MAX_BYTES_PER_TOKEN + SPARE_BYTES,
  });
}

async function firstOf(
  parts: LoopCall,
  opened: OpenHosted,
  { initial }: HostedTools,
): Promise<LoopBeginning> {
  if (opened !== initial) await coverOpened(parts, opened);
  const added = { messages: opened.messages, tools: opened.definitions };
  return { first: await parts.ask(sentLimit(parts.admitted, parts.candidate), added) };
}

interface LoopBeginning {
  /** Reads the provider's first answer. */
  readonly first?: Events;
  /** The state of the earlier call. Replaces the first answer. */
  readonly state?: LoopState;
}

/**
 * Continues from earlier steps. Rejects with 402 if the hold cannot cover their usage, unless it is already
 * charged.
 */
async function continueFrom(
  { candidate, steps }: LoopCall,
  { state, isPaid }: EarlierSteps,
): Promise<LoopBeginning> {
  const reached = state as LoopState;
  const { used, quantities } = reached;
  const total = usageOfCalls(used.slice(0, -1), used.at(-1) ?? NO_TOKENS, quantities);
  if (isPaid) {
    const paidTokens = reached.paidTokens + total.completionTokens;
    return { state: { ...reached, used: [], quantities: {}, paidTokens } };
  }
  if (await steps.reserveStep(candidate, total, { costFemto: 0 })) return { state: reached };
  throw new GatewayError(
    "insufficient_credits",
    "The credits do not cover the steps that an earlier attempt of the request has taken.",
  );
}

function modelOf({ call, candidate, admitted, ask }: LoopCall, opened: OpenHosted): LoopModel {
  const { request, statedLimit } = admitted;
  const sizeWith = (added: readonly AddedMessage[]) =>
    sizeOf(admitted, opened, promptSize({ messages: added }));
  return {
    candidate,
    statedLimit,
    bound: (added) => costBound(request.fields, sizeWith(added), candidate.terms),
    promptTokens: (added) => estimatedPromptTokens(sizeWith(added), candidate.terms),
    ask({ added, outputTokens, mayCall, onNewConnection, span }) {
      call.traceBy(span);
      // The model can still call the caller's own functions.
      const callsNothing = !mayCall && request.facts.hosted!.offered.length === 0;
      const toolChoice = callsNothing ? "none" : "auto";
      const parts: AddedParts = { messages: added, tools: opened.definitions, toolChoice };
      return ask(outputTokens, parts, onNewConnection);
    },
  };
}

function sizeOf({ request }: AdmittedResponse, opened: OpenHosted, added: PromptSize): PromptSize {
  return bothSizes(bothSizes(request.facts.size, opened.size), added);
}

/**
 * Extends the hold for tools that the servers listed after admission, which make the prompt longer. Rejects
 * with 402 if the credits do not cover the longer prompt.
 */
async function coverOpened(
  { candidate, admitted, steps }: LoopCall,
  opened: OpenHosted,
): Promise<void> {
  const { fields } = admitted.request;
  const { terms } = candidate;
  const size = sizeOf(admitted, opened, promptSize({ messages: opened.messages }));
  const bound = costBound(fields, size, terms);
  const tokens = sentLimit(admitted, candidate) ?? terms.maxOutputTokens;
  if (await steps.reserveStep(candidate, NO_TOKENS, stepBound(bound, tokens))) return;
  throw new GatewayError(
    "insufficient_credits",
    "The credits do not cover the request with the tools that its servers offer.",
  );
}
