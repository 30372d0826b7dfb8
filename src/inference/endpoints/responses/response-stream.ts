import type { ByteBuffer } from "../../../lib/byte-buffer.ts";
import type { ModelTerms } from "../../../lib/catalogue-model.ts";
import { type Clock, secondsNow } from "../../../lib/clock.ts";
import type { GatewayError } from "../../../lib/errors.ts";
import type { Usage } from "../../../lib/usage.ts";
import type { ChatAnswer, ChatEvent, PieceReader } from "../../../providers/interface.ts";
import { streamOf } from "../../../providers/transport/call-failures.ts";
import { type ProviderCall, providerRequest, sentLimit } from "../../call/call.ts";
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

/** Named server-sent events, followed by `[DONE]`. */
export class ResponseStreamForm implements StreamForm<AcceptedResponse, ResponseRenderer> {
  readonly contentType = EVENT_STREAM;
  readonly keepalive: string = ": keepalive\n\n";
  /** The number of events that were sent before the stream was opened. */
  protected readonly begunEvents: number = 0;
  readonly #clock: Clock;
  readonly #storeWriter: ResponseStoreWriter;

  constructor(clock: Clock, storeWriter: ResponseStoreWriter) {
    this.#clock = clock;
    this.#storeWriter = storeWriter;
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
  ): Promise<OpenedStream<ResponseRenderer>> {
    const { createdAt, facts, hosted } = admitted.request;
    const common = { model: candidate.model.id, nowSeconds: createdAt };
    const ask = askFor(call, candidate, admitted);
    const reader =
      hosted === undefined
        ? await ask(sentLimit(admitted, candidate))
        : await loopOfTools({ call, candidate, admitted, steps, ask }, hosted);
    this.#storeWriter.noteAnswered(admitted);
    const { echo } = facts;
    const { begunEvents } = this;
    const options = { ...outputOptions(admitted), ...common, echo, begunEvents };
    const answer = new ResponseRenderer(options, output);
    return { reader: admitted.guard?.events(reader) ?? reader, answer };
  }

  usage(answer: ResponseRenderer, { size }: AcceptedResponse, terms: ModelTerms): Usage {
    const { usage, outputTokens } = answer;
    return usage ?? answer.withRuns(countedUsage(size, terms, outputTokens));
  }

  storeAnswer(answer: ResponseRenderer, admitted: AdmittedResponse, facts: AnswerFacts) {
    return this.#storeWriter.storeAnswer(admitted, this.#whole(answer, facts));
  }

  ending(answer: ResponseRenderer, _request: AcceptedResponse, facts: AnswerFacts): string {
    return answer.closing(this.#whole(answer, facts));
  }

  #whole(answer: ResponseRenderer, { usage, costUsd }: AnswerFacts) {
    return answer.whole(usage, costUsd, secondsNow(this.#clock));
  }

  failure(
    error: GatewayError,
    requestId: string,
    answer: ResponseRenderer | undefined,
    facts: AnswerFacts | undefined,
  ): string {
    return answer?.failing(error, requestId, facts) ?? errorFrame(error, requestId, 0);
  }
}

/**
 * The stream of one background response. It has no client and needs no keepalive. Its last event is made from
 * its final state.
 */
export class BackgroundStreamForm extends ResponseStreamForm {
  override readonly keepalive = "";
  protected override readonly begunEvents = BEGUN_EVENTS;
  readonly isDeliveredWhole: boolean;
  readonly #progress: BackgroundProgress;

  constructor(clock: Clock, storeWriter: ResponseStoreWriter, progress: BackgroundProgress) {
    super(clock, storeWriter);
    this.#progress = progress;
    this.isDeliveredWhole = !progress.isStreamed;
  }

  /** Returns true if a response without a stream has failed. Nothing of it is shown, so it costs nothing. */
  isWaived(): boolean {
    return this.isDeliveredWhole && this.#progress.failure !== undefined;
  }

  override async open(...call: Parameters<ResponseStreamForm["open"]>) {
    const opened = await super.open(...call);
    this.#progress.renderer = opened.answer;
    return opened;
  }

  override ending(): string {
    return "";
  }

  override failure(
    error: GatewayError,
    _requestId: string,
    _answer: ResponseRenderer | undefined,
    facts: AnswerFacts | undefined,
  ): string {
    this.#progress.failure ??= error;
    this.#progress.charge = facts;
    return "";
  }
}

/** Returns the maximum bytes of a tool loop's answer. A longer answer fails. */
export function maxLoopOutputBytes({ fields }: AcceptedResponse): number {
  const stated = statedOutputLimit(fields);
  return stated === undefined
    ? MAX_LOOP_OUTPUT_BYTES
    : stated * MAX_BYTES_PER_TOKEN + SPARE_OUTPUT_BYTES;
}

type Step = [limit: number | undefined, added?: AddedParts, onNewConnection?: boolean];

/** Returns a function that calls the candidate and streams its answer. */
export function askFor(call: ProviderCall, candidate: Candidate, admitted: AdmittedResponse) {
  return async (...step: Step): Promise<Events> => {
    const answer = streamOf(await chat(call, candidate, admitted, ...step));
    return answer.events({ id: call.requestId });
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
  onNewConnection = call.onNewConnection,
): Promise<ChatAnswer> {
  const { fields, facts } = admitted.request;
  const asItems = receivesItems(facts, candidate);
  const shape = { added, asItems };
  const body = providerBody(fields, candidate, limit, admitted.plan.unsupported, shape);
  const stated = { stream: call.stream, body, asItems, onNewConnection };
  return candidate.provider.chat!(providerRequest(call, stated));
}
