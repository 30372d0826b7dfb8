import { type ProviderCall, sentLimit } from "../../calls/call.ts";
import { type StepMoney, stepBound } from "../../calls/endpoint.ts";
import type { Candidate } from "../../calls/routing/plan-route.ts";
import { GatewayError } from "../../lib/errors.ts";
import { NO_TOKENS } from "../../lib/usage.ts";
import type { ChatEvent, PieceReader } from "../../providers/interface.ts";
import type { AddedMessage } from "../../tools/added-messages.ts";
import { type LoopModel, ToolLoop } from "../../tools/tool-loop.ts";
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

/** What an output token takes at most, and what comes besides. */
const MAX_BYTES_PER_TOKEN = 64;
const SPARE_BYTES = 65_536;

interface LoopCall {
  readonly call: ProviderCall;
  readonly candidate: Candidate;
  readonly admitted: AdmittedResponse;
  readonly steps: StepMoney;
  readonly holdsFirstStep: boolean;
  ask(outputTokens: number | undefined, added: AddedParts): Promise<Events>;
}

/** A candidate's answer to a request whose tools the gateway runs. Rejects as the candidate does. */
export async function loopOfTools(parts: LoopCall, hosted: HostedTools): Promise<Events> {
  const { call, candidate, admitted, steps, holdsFirstStep } = parts;
  const { requestId, hold } = admitted;
  const { organizationId, keyId } = hold;
  const { signal } = call;
  const opened = await hosted.open({ organizationId, keyId, requestId, signal });
  const first = await firstOf(parts, opened, hosted).catch((error) => {
    hosted.close();
    throw error;
  });
  return new ToolLoop(first, {
    ...{ organizationId, keyId, requestId, signal, holdsFirstStep },
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
  { known }: HostedTools,
): Promise<Events> {
  if (opened !== known) await coverOpened(parts, opened);
  const added = { messages: opened.messages, tools: opened.definitions };
  return parts.ask(sentLimit(parts.admitted, parts.candidate), added);
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
      call.onNewConnection = onNewConnection;
      call.traceBy(span);
      // The caller's own functions may still be called.
      const isOver = !mayCall && request.facts.hosted!.offered.length === 0;
      const toolChoice = isOver ? "none" : "auto";
      return ask(outputTokens, { messages: added, tools: opened.definitions, toolChoice });
    },
  };
}

function sizeOf({ request }: AdmittedResponse, opened: OpenHosted, added: PromptSize): PromptSize {
  return bothSizes(bothSizes(request.facts.size, opened.size), added);
}

/** What the tools' servers have told makes the prompt longer than was known at admission. Rejects with 402. */
async function coverOpened(
  { candidate, admitted, steps }: LoopCall,
  opened: OpenHosted,
): Promise<void> {
  const { fields } = admitted.request;
  const { terms } = candidate;
  const size = sizeOf(admitted, opened, promptSize({ messages: opened.messages }));
  const bound = costBound(fields, size, terms);
  const tokens = sentLimit(admitted, candidate) ?? terms.maxOutputTokens;
  if (await steps.coverStep(candidate, NO_TOKENS, stepBound(bound, tokens))) return;
  throw new GatewayError(
    "insufficient_credits",
    "The credits do not cover the request with the tools that its servers offer.",
  );
}
