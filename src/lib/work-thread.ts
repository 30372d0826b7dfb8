import { readlinkSync } from "node:fs";
import { setPriority } from "node:os";
import { type ErrorCode, GatewayError, overloaded, stopping } from "./errors.ts";
import { FairSemaphore, type WaitSignal } from "./fair-share.ts";

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
  readonly #thread: WorkThread;
  readonly #semaphore: FairSemaphore;
  #isClosed = false;

  constructor(options: FairWorkThreadOptions) {
    const { maxWaiting, maxWaitingOfOne, maxWaitMs } = options;
    this.#thread = new WorkThread(options);
    const bounds = { maxWaiting, maxWaitingOfOne, maxWaitMs };
    this.#semaphore = new FairSemaphore({ most: 1, ...bounds, refusal: tooMuchWork });
  }

  /** Rejects with 503 if too much waits, or the thread is lost; otherwise as `WorkThread.call`. */
  async call<Result>(
    owner: string,
    call: unknown,
    signal?: WaitSignal,
    transfer?: Transferable[],
  ): Promise<Result> {
    if (this.#isClosed) throw stopping();
    const release = await this.#semaphore.acquire(owner, signal);
    try {
      if (this.#isClosed) throw stopping();
      return await this.#thread.call<Result>(call, transfer);
    } finally {
      release();
    }
  }

  /** Keeps what the thread has in memory for the caller, between calls, until `leave`. */
  enter(): void {
    this.#thread.enter();
  }

  leave(): void {
    this.#thread.leave();
  }

  /** Rejects what waits and what comes; the running call fails. */
  close(): void {
    this.#isClosed = true;
    this.#thread.close();
  }
}

function tooMuchWork(): GatewayError {
  return overloaded("Too many large requests are being read at once.");
}

interface WorkThreadOptions {
  /** Serves calls with `serveCalls`. */
  readonly script: URL;
  /**
   * A call that is not answered within it ends the thread: it hangs, or has far too much to do. Calls of a
   * thread that has answered none yet, because it still loads, have twice as long.
   */
  readonly deadlineMs: number;
  /** The thread died or was ended; the next call starts another one. */
  onLost(error: unknown): void;
}

/** Without work for so long a thread is ended, and its memory given back. */
const IDLE_MS = 10_000;

interface Request {
  readonly id: number;
  readonly call: unknown;
}

type Reply =
  | { readonly id: number; readonly result: unknown }
  | { readonly id: number; readonly refusal: Refusal }
  | { readonly id: number; readonly fault: string };

interface Refusal {
  readonly code: ErrorCode;
  readonly message: string;
  readonly param: string | null;
  readonly fields?: Readonly<Record<string, unknown>>;
}

interface PendingCall {
  resolve(result: unknown): void;
  reject(error: unknown): void;
  readonly deadline: ReturnType<typeof setTimeout>;
}

/**
 * A thread for work that would hold the event loop up. Calls are answered in their order, and each of them
 * is: where the thread crashes or hangs, all that wait are rejected with 503. Its states: none (no thread
 * runs); running; idle (as running, and ended after a while). A call in any of them leads to running.
 */
export class WorkThread {
  readonly #options: WorkThreadOptions;
  readonly #pending = new Map<number, PendingCall>();
  #worker: Worker | undefined;
  /** It has answered a call. */
  #isLoaded = false;
  #users = 0;
  #lastId = 0;
  #idleTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(options: WorkThreadOptions) {
    this.#options = options;
  }

  /** Rejects with the GatewayError that the thread refuses it with, or with 503 where the thread is lost. */
  call<Result>(call: unknown, transfer: Transferable[] = []): Promise<Result> {
    clearTimeout(this.#idleTimer);
    this.#worker ??= this.#start();
    const id = ++this.#lastId;
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    const { deadlineMs } = this.#options;
    const deadline = setTimeout(
      () => this.#lose(new Error("a work thread did not answer in time")),
      this.#isLoaded ? deadlineMs : 2 * deadlineMs,
    );
    this.#pending.set(id, { resolve, reject, deadline });
    this.#worker.postMessage({ id, call } satisfies Request, transfer);
    return promise as Promise<Result>;
  }

  /** Keeps what the thread has in memory for the caller, between calls, until `leave`. */
  enter(): void {
    this.#users++;
  }

  leave(): void {
    this.#users--;
    this.#endWhenIdle();
  }

  close(): void {
    clearTimeout(this.#idleTimer);
    if (this.#worker !== undefined) this.#end(lost());
  }

  #start(): Worker {
    this.#isLoaded = false;
    const worker = new Worker(this.#options.script.href);
    // A process that has nothing else to do may end.
    (worker as Worker & { unref(): void }).unref();
    worker.onmessage = ({ data }: MessageEvent<Reply>) => {
      if (worker === this.#worker) this.#take(data);
    };
    worker.addEventListener("error", (event) => {
      if (worker === this.#worker) this.#lose(new Error(event.message));
    });
    worker.addEventListener("close", () => {
      if (worker === this.#worker) this.#lose(new Error("a work thread ended by itself"));
    });
    return worker;
  }

  #take(reply: Reply): void {
    const pending = this.#pending.get(reply.id);
    if (pending === undefined) return;
    this.#isLoaded = true;
    this.#pending.delete(reply.id);
    clearTimeout(pending.deadline);
    if ("result" in reply) pending.resolve(reply.result);
    else if ("refusal" in reply) {
      const { code, message, ...details } = reply.refusal;
      pending.reject(new GatewayError(code, message, details));
    } else pending.reject(new Error(reply.fault));
    this.#endWhenIdle();
  }

  #endWhenIdle(): void {
    if (this.#users + this.#pending.size > 0 || this.#worker === undefined) return;
    clearTimeout(this.#idleTimer);
    this.#idleTimer = setTimeout(() => this.#end(lost()), IDLE_MS);
    this.#idleTimer.unref();
  }

  #lose(error: Error): void {
    this.#end(lost(error));
    this.#options.onLost(error);
  }

  #end(refusal: GatewayError): void {
    const worker = this.#worker;
    this.#worker = undefined;
    worker?.terminate();
    const calls = [...this.#pending.values()];
    this.#pending.clear();
    for (const { deadline, reject } of calls) {
      clearTimeout(deadline);
      reject(refusal);
    }
  }
}

function lost(cause?: unknown): GatewayError {
  return new GatewayError("overloaded", "The gateway could not check the request. Try again.", {
    retryAfterSeconds: 1,
    cause,
  });
}

/** Less than what serves requests: a machine of few cores is theirs first. */
const NICENESS = 10;

/**
 * Called in a thread: answers each call with what `serve` returns, resolves to or throws. What a result holds
 * of `transferOf` is handed over instead of copied.
 */
export function serveCalls<Call>(
  serve: (call: Call) => unknown,
  transferOf: (result: unknown) => Transferable[] = () => [],
): void {
  lowerPriority();
  const scope = globalThis as unknown as {
    onmessage: ((event: MessageEvent<Request>) => void) | null;
    postMessage(reply: Reply, transfer: Transferable[]): void;
  };
  scope.onmessage = async ({ data: { id, call } }) => {
    try {
      const served = serve(call as Call);
      const result = served instanceof Promise ? await served : served;
      scope.postMessage({ id, result }, transferOf(result));
    } catch (error) {
      if (!(error instanceof GatewayError)) scope.postMessage({ id, fault: String(error) }, []);
      else {
        const { code, message, param, fields } = error;
        const refusal: Refusal = { code, message, param, ...(fields !== undefined && { fields }) };
        scope.postMessage({ id, refusal }, []);
      }
    }
  };
}

/** Linux schedules threads one by one; elsewhere they stay as they are. */
function lowerPriority(): void {
  try {
    setPriority(Number(readlinkSync("/proc/thread-self").split("/").at(-1)), NICENESS);
  } catch {
    // Such a system has no name for the thread.
  }
}
