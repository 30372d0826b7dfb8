import { readdir } from "node:fs/promises";
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
  /** From the order of a run to its end. */
  readonly maxRunMs: number;
  /** Of Python's own memory. The process may have PROCESS_BYTES more. */
  readonly maxPythonBytes: number;
  readonly wheelFolder: string | null;
  readonly snapshotFolder: string | null;
}

/** How a run ended. The process lives on after the first two. */
export type RunEnd = "finished" | "raised" | "time" | "memory" | "crash" | "abort";

export interface PythonRun {
  readonly end: RunEnd;
  /** What was printed, with an uncaught exception at its end. */
  readonly text: string;
  readonly isTextCut: boolean;
  readonly pictures: readonly NamedFile[];
}

/** The process could not start, or is not locked down. */
export class PythonStartError extends Error {}

const SCRIPT = Bun.fileURLToPath(new URL("./python-main.ts", import.meta.url));
const MAX_START_MS = 60_000;
export const MAX_TEXT_BYTES = 65_536;
const MAX_PICTURE_BYTES = 4_194_304;
/** Of given files together. */
export const MAX_GIVEN_BYTES = 33_554_432;
/** What Bun and the interpreter take, given files included. */
const PROCESS_BYTES = 402_653_184;
/** Engines reserve more addresses than they use. */
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
 * A process with a Python interpreter, which serves one response. It is trusted with nothing: the kernel's filter is
 * checked from outside, its time and memory are watched from outside, and what it writes is bounded.
 */
export class PythonProcess {
  /** Rejects with PythonStartError. */
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
      env: {},
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

  /** When its last run ended, by `performance.now()`; undefined during a run and before the first. */
  get idleSinceMs(): number | undefined {
    return this.#idleSinceMs;
  }

  /** May be repeated. A run that is under way ends with "abort". */
  kill(death: RunEnd = "abort"): void {
    if (this.#death === "crash") this.#death = death;
    this.#child.kill("SIGKILL");
  }

  /** One at a time, after `ready`. Never rejects. The files stand in Python's work folder from then on. */
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
      // Rejects where the process has ended, which `exited` reports.
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

  /** Throws where the process writes what it must not, which the interpreter alone never does. */
  #take({ kind, payload }: Frame): void {
    if (kind === REPORT.ready) {
      this.#announced.resolve();
      return;
    }
    const cell = this.#running;
    if (cell === undefined) throw new Error("a report without a run");
    if (kind === REPORT.text) {
      cell.textBytes += payload.byteLength;
      // The interpreter stops by itself one byte later.
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

  /** Ends the process where it grows too large. As long as it lives, for it may work after the end of a run. */
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

/** Every thread has the filter, can gain no privilege and has none. Rejects with PythonStartError. */
export async function assertLockedDown(processId: number): Promise<void> {
  const threads = await readdir(`/proc/${processId}/task`).catch(() => []);
  const states = await Promise.all(threads.map((id) => statusOf(`${processId}/task/${id}`)));
  const isLocked = (state: string): boolean =>
    numberIn(state, "Seccomp") === 2 &&
    numberIn(state, "NoNewPrivs") === 1 &&
    /^CapEff:\s*0+$/m.test(state);
  if (states.length === 0 || !states.every(isLocked)) {
    throw new PythonStartError("the process of Python is not locked down");
  }
}

function statusOf(place: number | string): Promise<string> {
  return Bun.file(`/proc/${place}/status`).text();
}

/** 0 where there is no such line. */
function numberIn(status: string, name: string): number {
  return Number(new RegExp(`^${name}:\\s*(\\d+)`, "m").exec(status)?.[1] ?? 0);
}

/** Reads to the end, so that the writer never waits. */
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
  // A character cut in its middle is left out; no database keeps the character 0.
  const whole = new TextDecoder().decode(bytes, { stream: true }).replaceAll("\0", "\uFFFD");
  return { text: whole, isTextCut: textBytes > MAX_TEXT_BYTES };
}
