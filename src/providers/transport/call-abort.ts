/** As much of an AbortSignal as a client of ours listens to. */
export interface AbortNotice {
  readonly aborted: boolean;
  readonly reason: unknown;
  /** Of the call, where it is traced: see `TraceSpan`. Sent with its requests. */
  readonly traceparent?: string | undefined;
  addEventListener(type: "abort", listener: EventListenerObject): void;
  removeEventListener(type: "abort", listener: EventListenerObject): void;
}

/**
 * Ends a call to a provider. An AbortSignal costs as much as everything else that is noted of a call, so
 * one is made only on request; other listeners are called directly.
 */
export class CallAbort implements AbortNotice {
  traceparent: string | undefined;
  #isAborted = false;
  #reason: unknown;
  #controller: AbortController | undefined;
  /** A call has one listener at a time, mostly. */
  #listener: EventListenerObject | undefined;
  #others: Set<EventListenerObject> | undefined;

  get aborted(): boolean {
    return this.#isAborted;
  }

  get reason(): unknown {
    return this.#reason;
  }

  /** The same as a signal of the platform. */
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
