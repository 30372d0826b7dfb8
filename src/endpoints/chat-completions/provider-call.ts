import type { ChatCall } from "../../providers/interface.ts";
import { type AbortNotice, CallAbort } from "../../providers/transport/call-abort.ts";

/** A call for a provider, and what ends it early, in one object. */
export class ProviderCall extends CallAbort implements ChatCall {
  readonly requestId: string;
  readonly stream: boolean;
  model = "";
  modelId = "";
  body: Readonly<Record<string, unknown>> = NO_BODY;
  onNewConnection = false;

  constructor(requestId: string, stream: boolean) {
    super();
    this.requestId = requestId;
    this.stream = stream;
  }

  get abortNotice(): AbortNotice {
    return this;
  }
}

const NO_BODY = {};
