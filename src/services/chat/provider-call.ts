import type { CallAbort } from "../../providers/call-abort.ts";
import type { ChatCall } from "../../providers/interface.ts";

/** A call for a provider, with a signal for who asks for one. */
export class ProviderCall implements ChatCall {
  readonly model: string;
  readonly body: Readonly<Record<string, unknown>>;
  readonly stream: boolean;
  readonly requestId: string;
  readonly abortNotice: CallAbort;

  constructor(
    model: string,
    body: Readonly<Record<string, unknown>>,
    requestId: string,
    abort: CallAbort,
  ) {
    this.model = model;
    this.body = body;
    this.stream = body.stream === true;
    this.requestId = requestId;
    this.abortNotice = abort;
  }

  get signal(): AbortSignal {
    return this.abortNotice.signal;
  }
}
