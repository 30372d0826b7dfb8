import { type ProviderCall, sentLimit } from "../../calls/call.ts";
import type { AnswerFacts, OpenedStream, StepMoney, StreamForm } from "../../calls/endpoint.ts";
import type { Candidate } from "../../calls/routing/plan-route.ts";
import type { ModelTerms } from "../../lib/catalogue-model.ts";
import { type Clock, secondsNow } from "../../lib/clock.ts";
import type { GatewayError } from "../../lib/errors.ts";
import { latin1OfText } from "../../lib/event-splitter.ts";
import type { GrowingBytes } from "../../lib/growing-bytes.ts";
import type { Usage } from "../../lib/usage.ts";
import type { ChatAnswer, ChatEvent, PieceReader } from "../../providers/interface.ts";
import type { StreamedAnswer } from "../../providers/streamed-answer.ts";
import { notStreamed } from "../../providers/transport/call-failures.ts";
import { RawStreamEvents } from "../../providers/typed-answers.ts";
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
import type { ResponseKeeping } from "./keep-response.ts";
import type { OutputOptions } from "./output-items.ts";
import { goesAsItems } from "./provider-tools.ts";
import { nameOfResponse, withOutput } from "./response-json.ts";
import { EVENT_STREAM, errorFrame, ResponseRenderer } from "./response-renderer.ts";

type Events = PieceReader<readonly ChatEvent[]>;

/** What becomes of the bytes that tokens are, and of the items around them. */
const MAX_BYTES_PER_TOKEN = 64;
const SPARE_OUTPUT_BYTES = 65_536;
/** Of the text of all steps of a loop, where the caller set no limit. */
const MAX_LOOP_OUTPUT_BYTES = 33_554_432;

interface FormOptions {
  readonly isGathered: boolean;
  /** Of the one response that the form is for. */
  readonly background?: BackgroundProgress;
}

/**
 * Server-sent events with names, behind which `[DONE]` is the last. Gathered, the same answer is one JSON body at its
 * end. In the background there is no client to keep waiting, and the event that ends a response is made of what it is
 * then.
 */
export class ResponseStreamForm implements StreamForm<AcceptedResponse> {
  readonly contentType: string;
  readonly keepalive: string;
  readonly #clock: Clock;
  readonly #keeping: ResponseKeeping;
  readonly #isGathered: boolean;
  readonly #background: BackgroundProgress | undefined;

  constructor(clock: Clock, keeping: ResponseKeeping, { isGathered, background }: FormOptions) {
    this.#clock = clock;
    this.#keeping = keeping;
    this.#isGathered = isGathered;
    this.#background = background;
    this.contentType = isGathered ? "application/json" : EVENT_STREAM;
    this.keepalive = isGathered || background !== undefined ? "" : ": keepalive\n\n";
  }

  choices(): number {
    return 1;
  }

  keepsBody({ hosted }: AcceptedResponse): boolean {
    return hosted !== undefined;
  }

  isCostKnown(): boolean {
    return this.#isGathered;
  }

  maxOutputBytes({ hosted, fields }: AcceptedResponse): number | undefined {
    if (hosted === undefined) return undefined;
    const stated = statedOutputLimit(fields);
    return stated === undefined
      ? MAX_LOOP_OUTPUT_BYTES
      : stated * MAX_BYTES_PER_TOKEN + SPARE_OUTPUT_BYTES;
  }

  async open(
    call: ProviderCall,
    candidate: Candidate,
    admitted: AdmittedResponse,
    output: GrowingBytes,
    steps: StepMoney,
  ): Promise<OpenedStream> {
    const { createdAt, facts, hosted } = admitted.request;
    const common = { model: candidate.model.id, nowSeconds: createdAt };
    const eventsOf = (answer: ChatAnswer): Events => {
      if (answer.kind === "events") return answer.reader();
      if (answer.kind !== "stream") throw notStreamed();
      const options = { ...common, id: call.requestId, hidesReasoning: false };
      return new RawStreamEvents(answer, options);
    };
    const ask = async (limit: number | undefined, added?: AddedParts) =>
      eventsOf(await chat(call, candidate, admitted, limit, added));
    const reader =
      hosted === undefined
        ? await ask(sentLimit(admitted, candidate))
        : await loopOfTools(
            { call, candidate, admitted, steps, ask, holdsFirstStep: this.#isGathered },
            hosted,
          );
    this.#keeping.noteAnswered(admitted);
    const { echo } = facts;
    const background = this.#background;
    const begunEvents = background === undefined ? 0 : BEGUN_EVENTS;
    const told = { echo, isGathered: this.#isGathered, begunEvents };
    const answer = new ResponseRenderer({ ...outputOptions(admitted), ...common, ...told }, output);
    if (background !== undefined) background.renderer = answer;
    return { reader: admitted.guard?.events(reader) ?? reader, answer };
  }

  usage(answer: StreamedAnswer, { size }: AcceptedResponse, terms: ModelTerms): Usage {
    const { usage, outputTokens } = answer;
    if (usage !== undefined) return usage;
    const counted = countedUsage(size, terms, outputTokens);
    return answer instanceof ResponseRenderer ? answer.withRuns(counted) : counted;
  }

  keep(answer: StreamedAnswer, admitted: AdmittedResponse, facts: AnswerFacts) {
    return this.#keeping.keep(admitted, this.#whole(answer, facts));
  }

  ending(answer: StreamedAnswer, _request: AcceptedResponse, facts: AnswerFacts): string {
    if (this.#background !== undefined) return "";
    const whole = this.#whole(answer, facts);
    if (this.#isGathered) return latin1OfText(withOutput(whole.head, whole.output));
    return (answer as ResponseRenderer).closing(whole);
  }

  #whole(answer: StreamedAnswer, { usage, costUsd }: AnswerFacts) {
    return (answer as ResponseRenderer).whole(usage, costUsd, secondsNow(this.#clock));
  }

  failure(error: GatewayError, requestId: string, answer: StreamedAnswer | undefined): string {
    if (this.#background !== undefined) {
      this.#background.failure ??= error;
      return "";
    }
    if (!(answer instanceof ResponseRenderer)) return errorFrame(error, requestId, 0);
    // What was answered before is charged, so it is shown: the response has failed, the request has not.
    if (this.#isGathered) return latin1OfText(answer.stopped("failed", error));
    return answer.failing(error, requestId);
  }
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
  const asItems = goesAsItems(facts, candidate);
  call.asItems = asItems;
  call.body = providerBody(fields, candidate, limit, admitted.plan.lacked, { added, asItems });
  return candidate.provider.chat!(call);
}
