import { GatewayError, stopping } from "./errors.ts";
import { FairQueue } from "./fair-share.ts";
import { SharedRoom } from "./shared-room.ts";
import { WorkThread, type WorkThreadOptions } from "./work-thread.ts";

/** What ends a wait early; an AbortSignal is one. */
export interface WaitSignal {
  readonly aborted: boolean;
  readonly reason: unknown;
  addEventListener(type: "abort", listener: EventListenerObject): void;
  removeEventListener(type: "abort", listener: EventListenerObject): void;
}

export interface FairWorkThreadOptions extends WorkThreadOptions {
  /** Calls that may wait, and those of them that may be of one owner. */
  readonly maxWaiting: number;
  readonly maxWaitingOfOne: number;
  /** A call that has waited for so long is refused. */
  readonly maxWaitMs: number;
}

/**
 * A work thread that several owners share. The thread gets one call at a time, so that a call which crashes
 * or hangs it fails alone, and owners are served in turn: each waits for at most one call of every other.
 *
 * A call waits, runs, and ends. A waiting call ends with 503 when its time is up, and with its signal's
 * reason when that aborts. A running call cannot be interrupted: it ends with its result or with the thread.
 */
export class FairWorkThread {
  readonly #options: FairWorkThreadOptions;
  readonly #thread: WorkThread;
  readonly #queue = new FairQueue<WaitingCall>();
  readonly #places: SharedRoom;
  #isBusy = false;
  #isClosed = false;

  constructor(options: FairWorkThreadOptions) {
    this.#options = options;
    this.#thread = new WorkThread(options);
    this.#places = new SharedRoom(options.maxWaiting, options.maxWaitingOfOne);
  }

  /** Rejects with 503 where too much waits, or the thread is lost; otherwise as `WorkThread.call`. */
  async call<Result>(owner: string, call: unknown, signal: WaitSignal): Promise<Result> {
    if (this.#isClosed) throw stopping();
    if (!this.#places.tryTake(owner)) throw tooMuchWork();
    try {
      await this.#turn(owner, signal);
    } finally {
      this.#places.free(owner);
    }
    try {
      if (this.#isClosed) throw stopping();
      return await this.#thread.call<Result>(call);
    } finally {
      this.#isBusy = false;
      this.#startNext();
    }
  }

  /** Refuses what waits and what comes; the running call fails. */
  close(): void {
    this.#isClosed = true;
    this.#thread.close();
  }

  /** Resolves when the thread is this call's. */
  async #turn(owner: string, signal: WaitSignal): Promise<void> {
    if (signal.aborted) throw signal.reason;
    const waiting = new WaitingCall(signal, this.#options.maxWaitMs);
    this.#queue.push(owner, waiting);
    this.#startNext();
    try {
      await waiting.turn;
    } finally {
      waiting.end();
    }
  }

  #startNext(): void {
    while (!this.#isBusy) {
      const next = this.#queue.shift();
      if (next === undefined) return;
      this.#isBusy = next.begin();
    }
  }
}

class WaitingCall implements EventListenerObject {
  /** Rejects where the call is not to run. */
  readonly turn: Promise<void>;
  readonly #signal: WaitSignal;
  readonly #deadline: ReturnType<typeof setTimeout>;
  readonly #resolve: () => void;
  readonly #reject: (reason: unknown) => void;
  #isOver = false;

  constructor(signal: WaitSignal, maxWaitMs: number) {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.turn = promise;
    this.#resolve = resolve;
    this.#reject = reject;
    this.#signal = signal;
    this.#deadline = setTimeout(() => this.#refuse(tooMuchWork()), maxWaitMs);
    signal.addEventListener("abort", this);
  }

  /** False where the call has ended while it waited. */
  begin(): boolean {
    if (this.#isOver) return false;
    this.#isOver = true;
    this.#resolve();
    return true;
  }

  /** The abort of the signal. */
  handleEvent(): void {
    this.#refuse(this.#signal.reason);
  }

  end(): void {
    clearTimeout(this.#deadline);
    this.#signal.removeEventListener("abort", this);
  }

  #refuse(reason: unknown): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#reject(reason);
  }
}

function tooMuchWork(): GatewayError {
  return new GatewayError("overloaded", "Too many large requests are being read at once.", {
    retryAfterSeconds: 1,
  });
}
