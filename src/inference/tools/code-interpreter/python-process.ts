import { readdir } from "node:fs/promises";
import { SCRIPT_ENVIRONMENT } from "../../../lib/script-environment.ts";
import {
  decodeFile,
  encodeFile,
  encodeFrame,
  type Frame,
  FrameReader,
  type NamedFile,
  ORDER,
  REPORT,
  RUN_END,
} from "./frames.ts";
import type { PythonSettings } from "./python-main.ts";

export interface PythonBounds {
  /** Milliseconds of a run, from its order to its end. */
  readonly maxRunMs: number;
  /** Maximum bytes of Python's memory. The process can use PROCESS_BYTES more. */
  readonly maxPythonBytes: number;
  readonly wheelFolder: string | null;
  readonly snapshotFolder: string | null;
}

/** The end of a run. The process stays alive after the first two. */
export type RunEnd = "finished" | "raised" | "time" | "memory" | "crash" | "abort";

export interface PythonRun {
  readonly end: RunEnd;
  /** The printed text, followed by an uncaught exception. */
  readonly text: string;
  readonly isTextCut: boolean;
  readonly pictures: readonly NamedFile[];
}

/** Thrown if the process could not start or is not locked down. */
export class PythonStartError extends Error {}

const SCRIPT = Bun.fileURLToPath(new URL("./python-main.ts", import.meta.url));
const MAX_START_MS = 60_000;
export const MAX_TEXT_BYTES = 65_536;
const MAX_PICTURE_BYTES = 4_194_304;
/** Maximum bytes of all given files together. */
export const MAX_GIVEN_BYTES = 33_554_432;
/** Bytes that Bun and the interpreter use, including given files. */
const PROCESS_BYTES = 402_653_184;
/** Bytes of addresses that the process can map. JavaScript engines reserve more addresses than they use. */
const MAX_FURTHER_ADDRESS_BYTES = 4_294_967_296;
const MAX_CPU_SECONDS = 600;
const MAX_THREADS = 64;
const WATCH_MS = 50;
const MAX_FAULT_CHARACTERS = 2_000;
const HEAD_BYTES = 1_024;

interface RunningCell {
  readonly text: Uint8Array[];
  textBytes: number;
  readonly pictures: NamedFile[];
  pictureBytes: number;
  end(end: RunEnd): void;
}

/**
 * A process with a Python interpreter that serves one response. The process is untrusted: the gateway checks
 * the kernel's filter from outside, watches its time and memory from outside, and limits its output.
 */
export class PythonProcess {
  /** Resolves when the interpreter can run code. Rejects with PythonStartError if it cannot run safely. */
  readonly ready: Promise<void>;
  readonly exited: Promise<void>;
  readonly #bounds: PythonBounds;
  readonly #child: Bun.Subprocess<"pipe", "pipe", "pipe">;
  readonly #announced = Promise.withResolvers<void>();
  #running: RunningCell | undefined;
  #idleSinceMs: number | undefined;
  #death: RunEnd = "crash";

  constructor(bounds: PythonBounds) {
    this.#bounds = bounds;
    const settings: PythonSettings = {
      maxFurtherMemoryBytes: MAX_FURTHER_ADDRESS_BYTES,
      maxCpuSeconds: MAX_CPU_SECONDS,
      maxPythonBytes: bounds.maxPythonBytes,
      maxTextBytes: MAX_TEXT_BYTES,
      maxPictureBytes: MAX_PICTURE_BYTES,
      maxOrderBytes: MAX_GIVEN_BYTES + HEAD_BYTES,
      wheelFolder: bounds.wheelFolder,
      snapshotFolder: bounds.snapshotFolder,
    };
    const command = [process.execPath, "--no-env-file", SCRIPT, JSON.stringify(settings)];
    this.#child = Bun.spawn(command, {
      env: SCRIPT_ENVIRONMENT,
      cwd: "/",
      stdio: ["pipe", "pipe", "pipe"],
    });
    this.exited = this.#child.exited.then(() => {});
    const fault = readBeginning(this.#child.stderr);
    this.ready = this.#start(fault);
    this.ready.catch(() => this.kill());
    this.#readReports().catch(() => this.kill());
  }

  get processId(): number {
    return this.#child.pid;
  }

  get isAlive(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null && !this.#child.killed;
  }

  /** End of the last run, by `performance.now()`. Undefined during a run and before the first one. */
  get idleSinceMs(): number | undefined {
    return this.#idleSinceMs;
  }

  /** Kills the process. Can be called repeatedly. A current run ends with "abort". */
  kill(death: RunEnd = "abort"): void {
    if (this.#death === "crash") this.#death = death;
    this.#child.kill("SIGKILL");
  }

  /**
   * Runs code. Only one run at a time is allowed, and only after `ready`. Never rejects. The files stay in
   * Python's work folder.
   */
  async run(code: string, files: readonly NamedFile[], signal: AbortSignal): Promise<PythonRun> {
    const ended = Promise.withResolvers<RunEnd>();
    const cell: RunningCell = {
      text: [],
      textBytes: 0,
      pictures: [],
      pictureBytes: 0,
      end: ended.resolve,
    };
    this.#running = cell;
    this.#idleSinceMs = undefined;
    const abort = (): void => this.kill("abort");
    signal.addEventListener("abort", abort, { once: true });
    if (signal.aborted) abort();
    const timer = setTimeout(() => this.kill("time"), this.#bounds.maxRunMs);
    this.exited.then(() => ended.resolve(this.#death));
    try {
      this.#order(code, files);
      const end = await ended.promise;
      return { end, ...textOf(cell), pictures: cell.pictures };
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", abort);
      this.#running = undefined;
      this.#idleSinceMs = performance.now();
    }
  }

  async #start(fault: Promise<string>): Promise<void> {
    const timer = setTimeout(() => this.kill("time"), MAX_START_MS);
    try {
      await Promise.race([this.#announced.promise, this.exited]);
      if (!this.isAlive) throw new PythonStartError(`Python did not start: ${await fault}`);
      await assertLockedDown(this.processId);
    } finally {
      clearTimeout(timer);
    }
    this.#watch();
  }

  #order(code: string, files: readonly NamedFile[]): void {
    const { stdin } = this.#child;
    try {
      for (const file of files) stdin.write(encodeFile(ORDER.file, file));
      stdin.write(encodeFrame(ORDER.run, new TextEncoder().encode(code)));
      // Rejects if the process has ended, which `exited` reports.
      Promise.resolve(stdin.flush()).catch(() => {});
    } catch {
      this.kill();
    }
  }

  async #readReports(): Promise<void> {
    const reader = new FrameReader(MAX_PICTURE_BYTES + HEAD_BYTES);
    for await (const piece of this.#child.stdout) {
      for (const frame of reader.push(piece)) this.#take(frame);
    }
  }

  /** Handles a frame. Throws if the process sends a frame that the interpreter alone never sends. */
  #take({ kind, payload }: Frame): void {
    if (kind === REPORT.ready) {
      this.#announced.resolve();
      return;
    }
    const cell = this.#running;
    if (cell === undefined) throw new Error("a report without a run");
    if (kind === REPORT.text) {
      cell.textBytes += payload.byteLength;
      // The interpreter stops one byte later.
      if (cell.textBytes > MAX_TEXT_BYTES + 1) throw new Error("too much text");
      cell.text.push(payload);
    } else if (kind === REPORT.file) {
      const file = decodeFile(payload);
      cell.pictureBytes += payload.byteLength;
      if (file === undefined || cell.pictureBytes > 2 * MAX_PICTURE_BYTES) {
        throw new Error("not a picture, or too much of them");
      }
      cell.pictures.push(file);
    } else if (kind === REPORT.done) {
      this.#running = undefined;
      cell.end(payload[0] === RUN_END.finished ? "finished" : "raised");
    } else throw new Error(`unknown report ${kind}`);
  }

  /**
   * Ends the process if it uses too much memory or too many threads. Watches it for its whole life, because
   * it can also work after the end of a run.
   */
  #watch(): void {
    const maxBytes = this.#bounds.maxPythonBytes + PROCESS_BYTES;
    const look = async (): Promise<void> => {
      const status = await statusOf(this.processId);
      const isLarge = numberIn(status, "VmRSS") * 1_024 > maxBytes;
      if (isLarge || numberIn(status, "Threads") > MAX_THREADS) this.kill("memory");
    };
    const timer = setInterval(() => void look().catch(() => {}), WATCH_MS);
    timer.unref();
    this.exited.then(() => clearInterval(timer));
  }
}

/** Checks that every thread has the filter, cannot gain privileges, and has none. Rejects with PythonStartError. */
export async function assertLockedDown(processId: number): Promise<void> {
  const threads = await readdir(`/proc/${processId}/task`).catch(() => []);
  const states = await Promise.all(threads.map((id) => statusOf(`${processId}/task/${id}`)));
  const isLocked = (state: string): boolean =>
    numberIn(state, "Seccomp") === 2 &&
    numberIn(state, "NoNewPrivs") === 1 &&
    /^CapEff:\s*0+$/m.test(state);
  if (states.length === 0 || !states.every(isLocked)) {
    throw new PythonStartError("the Python process is not locked down");
  }
}

function statusOf(task: number | string): Promise<string> {
  return Bun.file(`/proc/${task}/status`).text();
}

/** Returns the number in a status line, or 0 if there is no such line. */
function numberIn(status: string, name: string): number {
  return Number(new RegExp(`^${name}:\\s*(\\d+)`, "m").exec(status)?.[1] ?? 0);
}

/**
 * Returns the beginning of the stream, at most `MAX_FAULT_CHARACTERS` characters. Reads to the end, so that the
 * writer never blocks.
 */
async function readBeginning(stream: ReadableStream<Uint8Array>): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const piece of stream) {
    if (text.length < MAX_FAULT_CHARACTERS) text += decoder.decode(piece, { stream: true });
  }
  return text.slice(-MAX_FAULT_CHARACTERS).trim();
}

function textOf({ text, textBytes }: RunningCell): Pick<PythonRun, "text" | "isTextCut"> {
  const bytes = Buffer.concat(text).subarray(0, MAX_TEXT_BYTES);
  // A character that is cut in its middle is left out. The character 0 is replaced, because databases do not
  // accept it.
  const whole = new TextDecoder().decode(bytes, { stream: true }).replaceAll("\0", "\uFFFD");
  return { text: whole, isTextCut: textBytes > MAX_TEXT_BYTES };
}
