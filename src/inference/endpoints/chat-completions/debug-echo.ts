import { GatewayError } from "../../../lib/errors.ts";
import { BodyRender, type ChatBody } from "../../../providers/chat-body.ts";
import type { AbortNotice } from "../../../providers/transport/call-abort.ts";
import type { ChatRequest } from "./request.ts";

/** Of a longer body so much is shown, as text. */
const MAX_SHOWN_BYTES = 32_768;

/**
 * Returns whether the answer is to show what was sent to the provider. Throws 400 if the operator does not allow it.
 * Other members of `debug` mean nothing here: with any of them the log line of the request tells more.
 */
export function asksEcho({ debug }: ChatRequest, isAllowed: boolean): boolean {
  const value = debug?.echo_upstream_body ?? false;
  if (typeof value !== "boolean") {
    const param = "debug.echo_upstream_body";
    const message = `Request body field "${param}": must be boolean.`;
    throw new GatewayError("invalid_body", message, { param });
  }
  if (value && !isAllowed) {
    const param = "debug.echo_upstream_body";
    const message = `${param} is switched off by the operator of this gateway.`;
    throw new GatewayError("unsupported_parameter", message, { param });
  }
  return value;
}

/** What a provider in this process gets in the place of a body. */
export const echoedFields = new BodyRender(import.meta.url, (fields) => ({
  body: JSON.stringify(fields),
}));

/** What the client is shown of a call, as OpenRouter has it. */
export interface DebugEcho {
  /** The body's JSON, or the beginning of its text. */
  readonly echo_upstream_body: unknown;
  readonly is_truncated?: true;
}

/** A body that notes what is rendered of it. Keys of providers are in headers, not in bodies. */
export class EchoedBody implements ChatBody {
  readonly #body: ChatBody;
  #sent: string | undefined;
  #isTruncated = false;

  constructor(body: ChatBody) {
    this.#body = body;
  }

  render<Options, Result>(
    render: BodyRender<Options, Result>,
    options: Options,
    signal: AbortNotice,
  ): Result | Promise<Result> {
    const rendered = this.#body.render(render, options, signal);
    return rendered instanceof Promise
      ? rendered.then((result) => this.#noted(result, signal))
      : this.#noted(rendered, signal);
  }

  get echo(): DebugEcho {
    const body = this.#isTruncated ? this.#sent : JSON.parse(this.#sent ?? "null");
    return { echo_upstream_body: body, ...(this.#isTruncated && { is_truncated: true }) };
  }

  #noted<Result>(result: Result, signal: AbortNotice): Result | Promise<Result> {
    if (this.#note((result as { body?: unknown }).body)) return result;
    const fields = this.#body.render(echoedFields, undefined, signal);
    if (fields instanceof Promise) {
      return fields.then(({ body }) => {
        this.#note(body);
        return result;
      });
    }
    this.#note(fields.body);
    return result;
  }

  #note(body: unknown): boolean {
    if (typeof body !== "string" && !(body instanceof Uint8Array)) return false;
    const bytes = Buffer.from(body as string);
    this.#isTruncated = bytes.length > MAX_SHOWN_BYTES;
    this.#sent = bytes.toString("utf8", 0, MAX_SHOWN_BYTES).toWellFormed();
    return true;
  }
}
