import { isFields, jsonValue } from "../../lib/json.ts";
import { type PieceReader, ProviderFailure } from "../interface.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import type { FailureContext } from "../transport/status-failure.ts";
import { type EventMessage, EventStreamDecoder } from "./event-stream-decoder.ts";
import { failureOfMessage } from "./failure-mapping.ts";

const FIELD = Buffer.from("data: ");
const END = Buffer.from("\n\n");
const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;
const SPACE = 0x20;

/**
 * Converts the stream of InvokeModelWithResponseStream to the event stream that Anthropic itself would send.
 * Each message contains one of Anthropic's events, in base64
 * (https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_PayloadPart.html). Skips messages of
 * other kinds. If the stream is broken or Bedrock reports an exception, rejects with ProviderFailure after
 * the events before it.
 */
export class ClaudeStream implements PieceReader {
  readonly #bytes: PieceReader;
  readonly #failureContext: () => FailureContext;
  readonly #decoder = new EventStreamDecoder();
  #pieces: Uint8Array[] = [];
  #failure: ProviderFailure | undefined;

  constructor(bytes: PieceReader, failureContext: () => FailureContext) {
    this.#bytes = bytes;
    this.#failureContext = failureContext;
  }

  async read(): Promise<{ done: boolean; value?: Uint8Array }> {
    if (this.#failure !== undefined) throw this.#failure;
    const { done, value } = await this.#bytes.read();
    try {
      if (done || value === undefined) this.#decoder.end();
      else this.#decoder.push(value, this.#takeMessage);
    } catch (error) {
      this.#failure =
        error instanceof ProviderFailure
          ? error
          : new ProviderFailure("unavailable", (error as Error).message, { cause: error });
      this.cancel().catch(() => undefined);
      if (this.#pieces.length === 0) throw this.#failure;
    }
    if (done && this.#failure === undefined) return { done: true };
    const piece = Buffer.concat(this.#pieces);
    this.#pieces = [];
    return { done: false, value: piece };
  }

  cancel(): Promise<void> {
    return this.#bytes.cancel();
  }

  readonly #takeMessage = (message: EventMessage): void => {
    const failure = failureOfMessage(message, this.#failureContext());
    if (failure !== undefined) throw failure;
    if (message.headers.get(":event-type") !== "chunk") return;
    this.#pieces.push(FIELD, eventIn(message.payload), END);
  };
}

/** Returns the event in a payload as one line: JSON can have line breaks between its members. */
function eventIn(payload: Uint8Array): Uint8Array {
  const part = jsonValue(new TextDecoder().decode(payload));
  if (!isFields(part) || typeof part.bytes !== "string") {
    throw brokenAnswer("a part of a stream without bytes");
  }
  const event = Buffer.from(part.bytes, "base64");
  for (let index = 0; index < event.length; index++) {
    if (event[index] === LINE_FEED || event[index] === CARRIAGE_RETURN) event[index] = SPACE;
  }
  return event;
}
