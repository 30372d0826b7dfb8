/** The part of an AbortSignal that the gateway's HTTP client uses. */
export interface AbortNotice {
  readonly aborted: boolean;
  readonly reason: unknown;
  /** Trace context of the call if it is traced: see `TraceSpan`. Sent with its requests. */
  readonly traceparent?: string | undefined;
  addEventListener(type: "abort", listener: EventListenerObject): void;
  removeEventListener(type: "abort", listener: EventListenerObject): void;
}

/**
 * Aborts a call to a provider. An AbortSignal costs as much as all other bookkeeping of a call, so it is only created
 * on request. Other listeners are called directly.
 */
export class CallAbort implements AbortNotice {
  traceparent: string | undefined;
  #isAborted = false;
  #reason: unknown;
  #controller: AbortController | undefined;
  /** The first listener. Most calls have one listener at a time. */
  #listener: EventListenerObject | undefined;
  #others: Set<EventListenerObject> | undefined;

  get aborted(): boolean {
    return this.#isAborted;
  }

  get reason(): unknown {
    return this.#reason;
  }

  /** The abort as a platform signal. */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#isAborted) this.#controller.abort(this.#reason);
    }
    return this.#controller.signal;
  }

  abort(): void {
    if (this.#isAborted) return;
    this.#isAborted = true;
    this.#reason = new DOMException("The operation was aborted.", "AbortError");
    this.#controller?.abort(this.#reason);
    const event = new Event("abort");
    const listeners = [this.#listener, ...(this.#others ?? [])];
    this.#listener = undefined;
    this.#others = undefined;
    for (const listener of listeners) listener?.handleEvent(event);
  }

  addEventListener(_type: "abort", listener: EventListenerObject): void {
    if (this.#isAborted) return;
    if (this.#listener === undefined) this.#listener = listener;
    else {
      this.#others ??= new Set();
      this.#others.add(listener);
    }
  }

  removeEventListener(_type: "abort", listener: EventListenerObject): void {
    if (this.#listener === listener) this.#listener = undefined;
    else this.#others?.delete(listener);
  }
}
