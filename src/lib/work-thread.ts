import { readlinkSync } from "node:fs";
import { setPriority } from "node:os";
import { type ErrorCode, GatewayError, overloaded, stopping } from "./errors.ts";
import { FairSemaphore, type WaitSignal } from "./fair-share.ts";

export interface FairWorkThreadOptions extends WorkThreadOptions {
  /** Most waiting calls. */
  readonly maxWaiting: number;
  /** Most waiting calls of one owner. */
  readonly maxWaitingOfOne: number;
  /** Longest wait of a call in milliseconds. Longer waits are rejected. */
  readonly maxWaitMs: number;
}

/**
 * A work thread that several owners share. It gets one call at a time, so that a call that crashes or hangs the
 * thread fails alone. Owners are served in turn: each waits for at most one call of every other owner.
 *
 * A waiting call ends with 503 after the longest wait, and with the signal's reason if the signal aborts. A
 * running call cannot be interrupted: it ends with its result or with the thread.
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

  /**
   * Runs a call in the thread. Rejects with 503 if too many calls wait or the thread is lost, and with the
   * GatewayError that the thread throws.
   */
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

  /** Keeps the thread and its memory alive between the caller's calls, until `leave`. */
  enter(): void {
    this.#thread.enter();
  }

  leave(): void {
    this.#thread.leave();
  }

  /** Rejects waiting and new calls. The running call fails. */
  close(): void {
    this.#isClosed = true;
    this.#thread.close();
  }
}

function tooMuchWork(): GatewayError {
  return overloaded("Too many large requests are being read.");
}

interface WorkThreadOptions {
  /** The script of the thread, which calls `serveCalls`. */
  readonly script: URL;
  /**
   * Longest duration of a call in milliseconds. After it the thread is ended, because it hangs or has far too
   * much work. A thread that has not answered any call yet is still loading, so its calls have twice this time.
   */
  readonly deadlineMs: number;
  /** Called when the thread has crashed or was ended. The next call starts another thread. */
  onLost(error: unknown): void;
}

/** Time without calls after which the thread is ended to free its memory. */
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
 * A thread for work that would block the event loop. It answers calls in order. If it crashes or hangs, all
 * waiting calls are rejected with 503. The first call starts the thread, and it ends after a time without calls.
 */
export class WorkThread {
  readonly #options: WorkThreadOptions;
  readonly #pending = new Map<number, PendingCall>();
  #worker: Worker | undefined;
  /** True after the thread has answered a call. */
  #isLoaded = false;
  #users = 0;
  #lastId = 0;
  #idleTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(options: WorkThreadOptions) {
    this.#options = options;
  }

  /**
   * Runs a call in the thread. Rejects with the GatewayError that the thread throws, or with 503 if the thread is
   * lost.
   */
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

  /** Keeps the thread and its memory alive between the caller's calls, until `leave`. */
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
    // The thread must not keep a process alive that has nothing else to do.
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

/** Lower priority than the threads that serve requests, for machines with few cores. */
const NICENESS = 10;

/**
 * Answers each call of this thread with the result of `serve`, or with its error. `transferOf` returns the
 * objects of a result that are transferred instead of copied.
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

/** Lowers the priority of this thread. It works only on Linux, which schedules threads one by one. */
function lowerPriority(): void {
  try {
    setPriority(Number(readlinkSync("/proc/thread-self").split("/").at(-1)), NICENESS);
  } catch {
    // This system has no such path.
  }
}
