import { GatewayError } from "../../../lib/errors.ts";
import { BodyRender, type ChatBody } from "../../../providers/chat-body.ts";
import type { AbortNotice } from "../../../providers/transport/call-abort.ts";
import type { ChatRequest } from "./request.ts";

/** Bytes of the provider's request body that an echo shows. A longer body is truncated and shown as text. */
const MAX_SHOWN_BYTES = 32_768;

/**
 * Returns true if the answer must show the provider's request body. Throws 400 if the operator does not allow
 * it. Other members of `debug` do not change the answer; any `debug` object adds details to the request's log
 * line.
 */
export function wantsEcho({ debug }: ChatRequest, isAllowed: boolean): boolean {
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

/** Renders the fields as JSON. Used for providers in this process, which receive no body. */
export const echoedFields = new BodyRender(import.meta.url, (fields) => ({
  body: JSON.stringify(fields),
}));

/** The debug information that the client receives, in OpenRouter's form. */
export interface DebugEcho {
  /** The JSON value of the body, or the beginning of its text. */
  readonly echo_upstream_body: unknown;
  readonly is_truncated?: true;
}

/** A body that records its own rendering. The provider's API key is in the headers, not in the body. */
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
      ? rendered.then((result) => this.#withEcho(result, signal))
      : this.#withEcho(rendered, signal);
  }

  get echo(): DebugEcho {
    const body = this.#isTruncated ? this.#sent : JSON.parse(this.#sent ?? "null");
    return { echo_upstream_body: body, ...(this.#isTruncated && { is_truncated: true }) };
  }

  #withEcho<Result>(result: Result, signal: AbortNotice): Result | Promise<Result> {
    if (this.#record((result as { body?: unknown }).body)) return result;
    const fields = this.#body.render(echoedFields, undefined, signal);
    if (fields instanceof Promise) {
      return fields.then(({ body }) => {
        this.#record(body);
        return result;
      });
    }
    this.#record(fields.body);
    return result;
  }

  #record(body: unknown): boolean {
    if (typeof body !== "string" && !(body instanceof Uint8Array)) return false;
    const bytes = Buffer.from(body as string);
    this.#isTruncated = bytes.length > MAX_SHOWN_BYTES;
    this.#sent = bytes.toString("utf8", 0, MAX_SHOWN_BYTES).toWellFormed();
    return true;
  }
}
