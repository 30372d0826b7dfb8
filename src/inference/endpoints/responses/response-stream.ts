import type { ByteBuffer } from "../../../lib/byte-buffer.ts";
import type { ModelTerms } from "../../../lib/catalogue-model.ts";
import { type Clock, secondsNow } from "../../../lib/clock.ts";
import type { GatewayError } from "../../../lib/errors.ts";
import type { Usage } from "../../../lib/usage.ts";
import type { ChatAnswer, ChatEvent, PieceReader } from "../../../providers/interface.ts";
import type { StreamedAnswer } from "../../../providers/streamed-answer.ts";
import { streamOf } from "../../../providers/transport/call-failures.ts";
import { type ProviderCall, sentLimit } from "../../call/call.ts";
import type { AnswerFacts, OpenedStream, StepMoney, StreamForm } from "../../call/endpoint.ts";
import type { Candidate } from "../../call/routing/plan-route.ts";
import { countedUsage } from "../chat-completions/cost-bound.ts";
import { type AddedParts, providerBody } from "../chat-completions/provider-body.ts";
import { statedOutputLimit } from "../chat-completions/request.ts";
import {
  type AcceptedResponse,
  type AdmittedResponse,
  type BackgroundProgress,
  BEGUN_EVENTS,
} from "./accepted.ts";
import { loopOfTools } from "./hosted-loop.ts";
import type { OutputOptions } from "./output-items.ts";
import { receivesItems } from "./provider-tools.ts";
import { nameOfResponse } from "./response-json.ts";
import { EVENT_STREAM, errorFrame, ResponseRenderer } from "./response-renderer.ts";
import type { ResponseStoreWriter } from "./response-store-writer.ts";

type Events = PieceReader<readonly ChatEvent[]>;

/** Maximum bytes of an output token. The spare bytes are for the items around the tokens. */
const MAX_BYTES_PER_TOKEN = 64;
const SPARE_OUTPUT_BYTES = 65_536;
/** Maximum text bytes of all steps of a tool loop, if the caller set no limit. */
const MAX_LOOP_OUTPUT_BYTES = 33_554_432;

/**
 * Named server-sent events, followed by `[DONE]`. A background response has no client and needs no keepalive.
 * Its last event is made from its final state.
 */
export class ResponseStreamForm implements StreamForm<AcceptedResponse> {
  readonly contentType = EVENT_STREAM;
  readonly keepalive: string;
  readonly isDeliveredWhole: boolean;
  readonly #clock: Clock;
  readonly #storeWriter: ResponseStoreWriter;
  readonly #background: BackgroundProgress | undefined;

  /** @param background the progress of the single response that uses this form */
  constructor(clock: Clock, storeWriter: ResponseStoreWriter, background?: BackgroundProgress) {
    this.#clock = clock;
    this.#storeWriter = storeWriter;
    this.#background = background;
    this.isDeliveredWhole = background?.isStreamed === false;
    this.keepalive = background === undefined ? ": keepalive\n\n" : "";
  }

  /** Returns true if a background response without a stream has failed. Nothing of it is shown, so it costs nothing. */
  isWaived(): boolean {
    return this.isDeliveredWhole && this.#background!.failure !== undefined;
  }

  choices(): number {
    return 1;
  }

  resendsBody({ hosted }: AcceptedResponse): boolean {
    return hosted !== undefined;
  }

  maxOutputBytes(request: AcceptedResponse): number | undefined {
    return request.hosted === undefined ? undefined : maxLoopOutputBytes(request);
  }

  async open(
    call: ProviderCall,
    candidate: Candidate,
    admitted: AdmittedResponse,
    output: ByteBuffer,
    steps: StepMoney,
  ): Promise<OpenedStream> {
    const { createdAt, facts, hosted } = admitted.request;
    const common = { model: candidate.model.id, nowSeconds: createdAt };
    const ask = askFor(call, candidate, admitted);
    const reader =
      hosted === undefined
        ? await ask(sentLimit(admitted, candidate))
        : await loopOfTools({ call, candidate, admitted, steps, ask }, hosted);
    this.#storeWriter.noteAnswered(admitted);
    const { echo } = facts;
    const background = this.#background;
    const begunEvents = background === undefined ? 0 : BEGUN_EVENTS;
    const options = { ...outputOptions(admitted), ...common, echo, begunEvents };
    const answer = new ResponseRenderer(options, output);
    if (background !== undefined) background.renderer = answer;
    return { reader: admitted.guard?.events(reader) ?? reader, answer };
  }

  usage(answer: StreamedAnswer, { size }: AcceptedResponse, terms: ModelTerms): Usage {
    const { usage, outputTokens } = answer;
    if (usage !== undefined) return usage;
    const counted = countedUsage(size, terms, outputTokens);
    return answer instanceof ResponseRenderer ? answer.withRuns(counted) : counted;
  }

  storeAnswer(answer: StreamedAnswer, admitted: AdmittedResponse, facts: AnswerFacts) {
    return this.#storeWriter.storeAnswer(admitted, this.#whole(answer, facts));
  }

  ending(answer: StreamedAnswer, _request: AcceptedResponse, facts: AnswerFacts): string {
    if (this.#background !== undefined) return "";
    return (answer as ResponseRenderer).closing(this.#whole(answer, facts));
  }

  #whole(answer: StreamedAnswer, { usage, costUsd }: AnswerFacts) {
    return (answer as ResponseRenderer).whole(usage, costUsd, secondsNow(this.#clock));
  }

  failure(
    error: GatewayError,
    requestId: string,
    answer: StreamedAnswer | undefined,
    facts: AnswerFacts | undefined,
  ): string {
    const background = this.#background;
    if (background !== undefined) {
      background.failure ??= error;
      background.charge = facts;
      return "";
    }
    return answer instanceof ResponseRenderer
      ? answer.failing(error, requestId, facts)
      : errorFrame(error, requestId, 0);
  }
}

/** Returns the maximum bytes of a tool loop's answer. A longer answer fails. */
export function maxLoopOutputBytes({ fields }: AcceptedResponse): number {
  const stated = statedOutputLimit(fields);
  return stated === undefined
    ? MAX_LOOP_OUTPUT_BYTES
    : stated * MAX_BYTES_PER_TOKEN + SPARE_OUTPUT_BYTES;
}

/** Returns a function that calls the candidate and streams its answer. */
export function askFor(call: ProviderCall, candidate: Candidate, admitted: AdmittedResponse) {
  return async (limit: number | undefined, added?: AddedParts): Promise<Events> => {
    const answer = streamOf(await chat(call, candidate, admitted, limit, added));
    return answer.events({ id: call.requestId, hidesReasoning: false });
  };
}

export function outputOptions({ requestId, request }: AdmittedResponse): OutputOptions {
  const { customTools, namespaced, showsSummary } = request.facts;
  return { name: nameOfResponse(requestId), showsSummary, customTools, namespaced };
}

/** Calls the candidate. */
export function chat(
  call: ProviderCall,
  candidate: Candidate,
  admitted: AdmittedResponse,
  limit: number | undefined,
  added?: AddedParts,
): Promise<ChatAnswer> {
  const { fields, facts } = admitted.request;
  const asItems = receivesItems(facts, candidate);
  call.asItems = asItems;
  call.body = providerBody(fields, candidate, limit, admitted.plan.unsupported, { added, asItems });
  return candidate.provider.chat!(call);
}
