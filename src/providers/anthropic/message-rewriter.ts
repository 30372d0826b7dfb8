import type { ByteBuffer } from "../../lib/byte-buffer.ts";
import { EventSplitter, latin1OfText } from "../../lib/event-splitter.ts";
import { isFields } from "../../lib/json.ts";
import type { Usage } from "../../lib/usage.ts";
import { type AnswerOptions, ProviderFailure } from "../interface.ts";
import { MessageStream } from "../messages-provider.ts";
import { eventOf } from "../transport/stream-event.ts";
import { ReportedUsage } from "./reported-usage.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Largest single event, in bytes. A larger event means that the provider is broken. */
const MAX_EVENT_BYTES = 16 * 1024 * 1024;
/** Allowed names in the `event:` line of a frame. */
const EVENT_NAME = /^[\w.-]{1,100}$/;

/**
 * Relays the events of a stream unchanged except for the gateway's id and model, and meters it. It holds the
 * last `message_delta` back until the charge, and then sends it and `message_stop`. Events of unknown types
 * pass.
 *
 * Throws ProviderFailure at an invalid event, an event that is too large, and a second `message_start`.
 */
export class MessageRewriter extends MessageStream<Uint8Array> {
  readonly #options: AnswerOptions;
  readonly #failureOf: (event: Fields) => ProviderFailure;
  readonly #splitter = new EventSplitter(MAX_EVENT_BYTES);
  readonly #usage = new ReportedUsage();
  #hasMessage = false;
  #closing: Fields = {};

  constructor(
    options: AnswerOptions,
    output: ByteBuffer,
    failureOf: (event: Fields) => ProviderFailure,
  ) {
    super(output, options.nowSeconds);
    this.#options = options;
    this.#failureOf = failureOf;
  }

  override closing(_usage: Usage, costUsd: number): string {
    const { usage } = this.#closing;
    const delta = { ...this.#closing, usage: { ...(isFields(usage) && usage), cost: costUsd } };
    return frame("message_delta", delta) + frame("message_stop", { type: "message_stop" });
  }

  protected override take(bytes: Uint8Array): void {
    this.#splitter.push(bytes, this.#takeEvent);
  }

  protected override takeEnd(): void {
    this.#splitter.end(this.#takeEvent);
  }

  readonly #takeEvent = (data: string): void => {
    if (this.isDone) return;
    this.noteEvents(1);
    // Proxies add OpenAI's end marker.
    if (data === "" || data === "[DONE]") return;
    const event = eventOf(data);
    if (this.failure !== undefined) {
      this.#takeUsage(event.usage);
      return;
    }
    switch (event.type) {
      case "message_start":
        this.#begin(event);
        break;
      case "message_delta":
        this.#takeDelta(event);
        break;
      case "message_stop":
        this.noteDone();
        break;
      case "error":
        this.#takeUsage(event.usage);
        this.noteReportedError(this.#failureOf(event));
        break;
      default:
        this.#meter(event);
        this.#pass(event, data);
    }
  };

  #begin(event: Fields): void {
    const { message } = event;
    if (!isFields(message)) throw broken("a message_start without a message");
    if (this.#hasMessage) throw broken("a second message_start");
    this.#hasMessage = true;
    this.startedChoices = 1;
    this.#takeUsage(message.usage, "begin");
    const { id, model } = this.#options;
    this.output.add(frame("message_start", { ...event, message: { ...message, id, model } }));
  }

  /** Reads a `message_delta`. A later one replaces an earlier one, which then did not report the end. */
  #takeDelta(event: Fields): void {
    const { delta, usage } = event;
    this.#takeUsage(usage);
    this.#closing = event;
    if (!isFields(delta) || typeof delta.stop_reason !== "string") return;
    this.noteBegun();
    this.startedChoices = 1;
    this.finishedChoices = 1;
  }

  /** Adopts reported usage. If it has no completion tokens, the tokens that the gateway counted stay. */
  #takeUsage(raw: unknown, part: "begin" | "take" = "take"): void {
    if (!this.#usage[part](raw)) return;
    const { usage } = this.#usage;
    if (usage !== undefined) this.noteUsage(usage);
  }

  #meter({ type, content_block: block, delta }: Fields): void {
    if (type === "content_block_start" && isFields(block)) {
      this.noteBegun();
      this.meter(bytesOfBlock(block));
    } else if (type === "content_block_delta" && isFields(delta)) {
      this.noteBegun();
      this.meter(bytesIn(delta.text) + bytesIn(delta.thinking) + bytesIn(delta.partial_json));
    }
  }

  #pass(event: Fields, data: string): void {
    const { type } = event;
    if (typeof type !== "string" || !EVENT_NAME.test(type)) throw broken("an event without a name");
    this.output.add(data.includes("\n") ? frame(type, event) : `event: ${type}\ndata: ${data}\n\n`);
  }
}

/** Returns the bytes of a block that count as its answer: neither its signature nor its id. */
export function bytesOfBlock(block: Fields): number {
  const { text, thinking, data, name, input } = block;
  const bytes = bytesIn(text) + bytesIn(thinking) + bytesIn(data) + bytesIn(name);
  const hasInput = isFields(input) && Object.keys(input).length > 0;
  return hasInput ? bytes + bytesIn(JSON.stringify(input)) : bytes;
}

function bytesIn(text: unknown): number {
  return typeof text === "string" ? Buffer.byteLength(text) : 0;
}

function frame(name: string, event: unknown): string {
  return `event: ${name}\ndata: ${latin1OfText(JSON.stringify(event))}\n\n`;
}

function broken(what: string): ProviderFailure {
  return new ProviderFailure("unavailable", `the provider's stream holds ${what}`);
}
