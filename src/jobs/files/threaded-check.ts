import { GatewayError } from "../../lib/errors.ts";
import type { FilePurpose } from "../../lib/file-record.ts";
import { FairWorkThread } from "../../lib/work-thread.ts";
import { CHECKED } from "./file-check.ts";

export interface CheckingCall {
  readonly check: number;
  readonly step:
    | { readonly kind: "begin"; readonly purpose: FilePurpose | undefined }
    | { readonly kind: "write"; readonly piece: Uint8Array }
    | { readonly kind: "end" }
    | { readonly kind: "decide"; readonly purpose: FilePurpose }
    | { readonly kind: "drop" };
}

/** Milliseconds after which a thread counts as hung. A piece contains at most one line of the maximum length. */
const DEADLINE_MS = 30_000;
/**
 * Maximum waiting steps. Uploads are bounded and each has one piece at a time, so more steps wait only after
 * a fault.
 */
const MAX_WAITING = 4_096;
const MAX_WAIT_MS = 120_000;

/**
 * Checks the bytes of uploads in a separate thread, because parsing JSON lines takes long. Organizations are
 * served in turn, one piece at a time.
 */
export class CheckingThread {
  readonly #thread: FairWorkThread;
  #lastId = 0;

  constructor(onLost: (error: unknown) => void) {
    const script = new URL("./checking-thread.ts", import.meta.url);
    this.#thread = new FairWorkThread({
      script,
      deadlineMs: DEADLINE_MS,
      maxWaiting: MAX_WAITING,
      maxWaitingOfOne: MAX_WAITING / 2,
      maxWaitMs: MAX_WAIT_MS,
      onLost,
    });
  }

  /**
   * Begins the check of a file. The purpose can be undefined if it is not known yet. Returns undefined if the
   * purpose accepts any bytes.
   */
  begin(owner: string, purpose: FilePurpose | undefined): ThreadedCheck | undefined {
    if (purpose !== undefined && !CHECKED.includes(purpose)) return undefined;
    return new ThreadedCheck(this.#thread, owner, ++this.#lastId, purpose);
  }

  close(): void {
    this.#thread.close();
  }
}

/**
 * The check of one upload. Must be dropped at its end. Rejects with 400 if the bytes are invalid, and with 503 if
 * the thread cannot check them.
 */
export class ThreadedCheck {
  readonly #thread: FairWorkThread;
  readonly #owner: string;
  readonly #id: number;
  #purpose: FilePurpose | undefined;
  #contentType: string | undefined;
  /** Resolves after all steps so far. */
  #passed: Promise<void>;
  #isDropped = false;

  constructor(thread: FairWorkThread, owner: string, id: number, purpose: FilePurpose | undefined) {
    this.#thread = thread;
    this.#owner = owner;
    this.#id = id;
    this.#purpose = purpose;
    thread.enter();
    this.#passed = this.#take({ kind: "begin", purpose });
    this.#passed.catch(() => {});
  }

  /** The content type that the bytes show. Complete when all steps have passed. */
  get contentType(): string | undefined {
    return this.#contentType;
  }

  /** Checks a piece. The caller can reuse the piece immediately. */
  write(piece: Uint8Array): Promise<void> {
    // A copy of exactly these bytes, because the piece can be part of a much larger buffer.
    const copy = new Uint8Array(piece);
    return this.#then({ kind: "write", piece: copy }, [copy.buffer]);
  }

  end(): Promise<void> {
    return this.#then({ kind: "end" });
  }

  /** Sets the purpose. `passed` then resolves with the outcome for it. */
  decide(purpose: FilePurpose): void {
    if (this.#purpose !== undefined) throw new Error("the purpose is already decided");
    this.#purpose = purpose;
    this.#then({ kind: "decide", purpose }).catch(() => {});
  }

  /** Resolves when all steps have passed. Rejects with the first fault. */
  passed(): Promise<void> {
    return this.#passed;
  }

  drop(): void {
    if (this.#isDropped) return;
    this.#isDropped = true;
    this.#take({ kind: "drop" }).catch(() => {});
    this.#thread.leave();
  }

  #then(step: CheckingCall["step"], transfer: Transferable[] = []): Promise<void> {
    const checked = this.#take(step, transfer);
    checked.catch(() => {});
    const passed = this.#passed;
    this.#passed = passed.then(() => checked);
    this.#passed.catch(() => {});
    return this.#passed;
  }

  async #take(step: CheckingCall["step"], transfer: Transferable[] = []): Promise<void> {
    const call: CheckingCall = { check: this.#id, step };
    try {
      this.#contentType = await this.#thread.call<string | undefined>(
        this.#owner,
        call,
        undefined,
        transfer,
      );
    } catch (error) {
      if (error instanceof GatewayError) throw error;
      throw new GatewayError("overloaded", "The file could not be checked. Try again.", {
        retryAfterSeconds: 1,
        cause: error,
      });
    }
  }
}
