import { errorEnvelope } from "../../../http/error-response.ts";
import type { ByteBuffer } from "../../../lib/byte-buffer.ts";
import type { GatewayError } from "../../../lib/errors.ts";
import { latin1OfText } from "../../../lib/event-splitter.ts";
import { isFields } from "../../../lib/json.ts";
import type { Usage } from "../../../lib/usage.ts";
import type { ChatEvent } from "../../../providers/interface.ts";
import { StreamedAnswer } from "../../../providers/streamed-answer.ts";
import { answerBytes } from "../../../providers/typed-answers.ts";
import { OutputItems, type OutputOptions } from "./output-items.ts";
import { endOf, type ResponseParts, responseHead, usageOf, withOutput } from "./response-json.ts";

export interface RenderOptions extends OutputOptions {
  /** The resolved model. */
  readonly model: string;
  /** Time when the request was accepted, in Unix seconds. */
  readonly nowSeconds: number;
  readonly echo: string;
  /** Number of events that were sent before the first event of the answer. */
  readonly begunEvents?: number;
  /** True if the answer is sent complete, without events. */
  readonly isGathered?: boolean;
}

export interface WholeResponse {
  readonly head: string;
  readonly output: string;
}

type ForeignEvent = Extract<ChatEvent, { readonly type: "foreign_item" }>;

/** Item types of tools that the provider runs. */
const RUNS: ReadonlySet<unknown> = new Set([
  "web_search_call",
  "file_search_call",
  "code_interpreter_call",
  "image_generation_call",
  "mcp_call",
]);

/** The content type of a stream. */
export const EVENT_STREAM = "text/event-stream; charset=utf-8";
/** The last frame of a stream. */
export const DONE = "data: [DONE]\n\n";

interface StoppedOptions {
  readonly error?: GatewayError | undefined;
  /** The charge of the response. Undefined if it costs nothing, or if the charge is not known yet. */
  readonly charge?: { readonly usage: Usage; readonly costUsd: number } | undefined;
}

/** Renders typed events as events of the Responses API. */
export class ResponseRenderer extends StreamedAnswer<readonly ChatEvent[]> {
  readonly #options: RenderOptions;
  readonly #items: OutputItems;
  #sequence: number;
  #hasStarted = false;
  #whole: WholeResponse | undefined;
  /** Number of tool calls that the provider ran, and of the searches among them, which have a separate price. */
  #runs = 0;
  #searches = 0;

  constructor(options: RenderOptions, output: ByteBuffer) {
    super(output, options.nowSeconds);
    this.#options = options;
    this.#sequence = options.begunEvents ?? 0;
    this.#items = new OutputItems(
      options,
      options.isGathered ? undefined : (type, members) => this.#add(type, members),
    );
  }

  /** Returns the complete response in two parts of JSON: see `withOutput`. Later calls return the first result. */
  whole(usage: Usage, costUsd: number, nowSeconds: number): WholeResponse {
    this.#whole ??= this.#makeWhole(usage, costUsd, nowSeconds);
    return this.#whole;
  }

  #makeWhole(usage: Usage, costUsd: number, nowSeconds: number): WholeResponse {
    const end = this.#end;
    const completedAt = end.status === "completed" ? nowSeconds : null;
    const head = this.#head({ ...end, completedAt, usage: usageOf(usage, costUsd) });
    return { head, output: this.#items.json };
  }

  /** The JSON of the items so far, separated by commas, and how they ended. */
  get items(): Pick<OutputItems, "json" | "finish" | "limit"> {
    return this.#items;
  }

  /** Returns the JSON of a response that will not be completed, with the items so far. */
  stopped(status: "failed" | "cancelled", { error, charge }: StoppedOptions = {}): string {
    const errorMember = error && { code: error.code, message: error.message };
    const usage = charge === undefined ? null : usageOf(charge.usage, charge.costUsd);
    return withOutput(this.#head({ status, error: errorMember, usage }), this.#items.json);
  }

  /** Returns the events that end a complete response, with bytes as Latin-1 characters. */
  closing({ head, output }: WholeResponse): string {
    const { status } = this.#end;
    return this.#frame(`response.${status}`, `"response":${withOutput(head, output)}`) + DONE;
  }

  /** Returns the events that end a failed response, with bytes as Latin-1 characters. */
  failing(error: GatewayError, requestId: string, charge?: StoppedOptions["charge"]): string {
    const failed = `"response":${this.stopped("failed", { error, charge })}`;
    const frame = this.#hasStarted ? this.#frame("response.failed", failed) : "";
    return frame + errorFrame(error, requestId, this.#sequence++);
  }

  get #end(): ReturnType<typeof endOf> {
    const { finish = "stop", limit } = this.#items;
    return endOf(finish, limit);
  }

  protected override take(events: readonly ChatEvent[]): void {
    this.noteEvents(events.length);
    for (const event of events) this.#takeEvent(event);
  }

  protected override takeEnd(): void {
    // Each event is complete, so no state remains at the end.
  }

  #takeEvent(event: ChatEvent): void {
    if (event.type === "usage") this.noteUsage(event.usage);
    else if (this.failure !== undefined) return;
    else if (event.type === "error") this.noteReportedError(event.failure);
    else if (event.type === "withheld") {
      this.#start();
      this.noteWithheld(event.bytes);
    } else if (event.choice !== 0 || this.#items.finish !== undefined) return;
    else {
      this.#start();
      this.startedChoices = 1;
      this.noteBegun();
      this.meter(answerBytes(event));
      if (event.type === "foreign_item") this.#countRun(event);
      this.#items.add(event);
      if (event.type === "finish") this.finishedChoices = 1;
    }
  }

  /**
   * Returns the counted usage of an unfinished answer, with tool runs included. The provider reads the prompt
   * again after each run.
   */
  withRuns(counted: Usage): Usage {
    if (this.#runs === 0) return counted;
    const { promptTokens } = counted;
    return {
      ...counted,
      promptTokens: promptTokens * (this.#runs + 1),
      ...(this.#searches > 0 && { webSearches: this.#searches }),
    };
  }

  #countRun({ step, fields: { type, action } }: ForeignEvent): void {
    if (step !== "done" || !RUNS.has(type)) return;
    this.#runs += 1;
    const isOpened = isFields(action) && action.type !== undefined && action.type !== "search";
    if (type === "web_search_call" && !isOpened) this.#searches += 1;
  }

  #start(): void {
    if (this.#hasStarted || this.#options.isGathered) return;
    this.#hasStarted = true;
    const begun = withOutput(this.#head({ status: "in_progress", usage: null }), "");
    if (this.#sequence === 0) this.#add("response.created", `"response":${begun}`);
    this.#add("response.in_progress", `"response":${begun}`);
  }

  #head(parts: Pick<ResponseParts, "status" | "usage"> & Partial<ResponseParts>): string {
    const { name, model, nowSeconds: createdAt, echo } = this.#options;
    return responseHead({ name, model, createdAt, completedAt: null, echo, ...parts });
  }

  #add(type: string, members: string): void {
    this.output.add(this.#frame(type, members));
  }

  #frame(type: string, members: string): string {
    return eventFrame(type, this.#sequence++, members);
  }
}

/** Returns an error event of a stream, with the error envelope of all APIs. */
export function errorFrame(error: GatewayError, requestId: string, sequence: number): string {
  const envelope = errorEnvelope(error, requestId);
  const { code, message, param } = envelope.error;
  const members = JSON.stringify({ code, message, param, ...envelope }).slice(1, -1);
  return eventFrame("error", sequence, members);
}

/** Returns a frame of a stream, with bytes as Latin-1 characters. `members` are JSON without braces. */
export function eventFrame(type: string, sequence: number, members: string): string {
  const json = `{"type":"${type}","sequence_number":${sequence},${members}}`;
  return `event: ${type}\ndata: ${latin1OfText(json)}\n\n`;
}
