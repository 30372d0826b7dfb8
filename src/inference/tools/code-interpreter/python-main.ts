/**
 * The main module of a Python process (Pyodide), which runs a model's code. The process locks itself down
 * before it reads its first order. It ends with the response that it serves.
 */
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readSync,
  renameSync,
  rmSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { constants, setPriority } from "node:os";
import { join } from "node:path";
import { loadPyodide, type PyodideAPI, version } from "pyodide";
import {
  decodeFile,
  encodeFile,
  encodeFrame,
  FrameReader,
  ORDER,
  REPORT,
  RUN_END,
} from "./frames.ts";
import { type LockDownBounds, lockDown } from "./lock-down.ts";
import { PREPARE_PYTHON, PYTHON_PATH, WORK_FOLDER } from "./python-text.ts";
import { type FileSystem, WrittenFiles } from "./written-files.ts";

/** The settings that the process receives as its argument. */
export interface PythonSettings extends LockDownBounds {
  /** Maximum bytes of Python's memory. Beyond it, Python raises MemoryError. */
  readonly maxPythonBytes: number;
  readonly maxTextBytes: number;
  readonly maxPictureBytes: number;
  readonly maxOrderBytes: number;
  /** Folder of wheels that Python can import. */
  readonly wheelFolder: string | null;
  /** Folder in which a process stores a snapshot of Python's memory for later processes. */
  readonly snapshotFolder: string | null;
}

const INPUT = 0;
const OUTPUT = 1;
const READ_BYTES = 65_536;
const PAGE_BYTES = 65_536;

const OPTIONS = {
  jsglobals: Object.create(null) as object,
  env: { HOME: WORK_FOLDER, MPLBACKEND: "Agg", MPLCONFIGDIR: "/tmp", _: PYTHON_PATH },
  _sysExecutable: PYTHON_PATH,
  stdout: () => {},
  stderr: () => {},
};

/** Bun's `process`, read before the global of this name is removed. */
const { process: currentProcess } = globalThis;

type RunCell = (code: string) => Promise<boolean>;

async function serve(settings: PythonSettings): Promise<void> {
  boundPythonMemory(settings.maxPythonBytes);
  setPriority(constants.priority.PRIORITY_BELOW_NORMAL);
  const python = await loadPython(settings);
  const output = new Output(settings.maxTextBytes);
  for (const set of [python.setStdout, python.setStderr]) {
    set.call(python, { write: (bytes: Uint8Array) => output.write(bytes), isatty: false });
  }
  python.setStdin({ stdin: () => null });
  const runCell = python.runPython(PREPARE_PYTHON) as RunCell;
  // A Python with a fatal error cannot run code or report the error, so the process exits.
  const { _api: api } = python as unknown as { readonly _api: { on_fatal?(): void } };
  api.on_fatal = () => currentProcess.exit(1);
  const files = new WrittenFiles(python.FS as FileSystem, settings.maxPictureBytes);
  // Compiles everything that is compiled on first use.
  await runCell("import asyncio; await asyncio.sleep(0)");
  lockDown(settings);
  closeToScripts();
  send(encodeFrame(REPORT.ready));
  const orders = new FrameReader(settings.maxOrderBytes);
  for (const buffer = new Uint8Array(READ_BYTES); ; ) {
    const length = readSync(INPUT, buffer);
    if (length === 0) currentProcess.exit(0);
    for (const { kind, payload } of orders.push(buffer.slice(0, length))) {
      if (kind === ORDER.file) files.add(decodeFile(payload)!);
      else if (kind === ORDER.run) {
        output.restart();
        const hasFinished = await runCell(new TextDecoder().decode(payload));
        const { pictures, others } = files.collect();
        for (const picture of pictures) send(encodeFile(REPORT.file, picture));
        if (others.length > 0) output.write(text(`Files written: ${others.join(", ")}\n`));
        const end = hasFinished ? RUN_END.finished : RUN_END.raised;
        send(encodeFrame(REPORT.done, Uint8Array.of(end)));
      }
    }
  }
}

async function loadPython(settings: PythonSettings): Promise<PyodideAPI> {
  const python = await startPython(settings.snapshotFolder);
  const { wheelFolder } = settings;
  if (wheelFolder !== null) {
    const wheels = readdirSync(wheelFolder).filter((name) => name.endsWith(".whl"));
    const paths = wheels.map((name) => join(wheelFolder, name));
    await python.loadPackage(paths, { checkIntegrity: false, messageCallback: () => {} });
  }
  return python;
}

/**
 * Starts Python, in a tenth of the time if a snapshot of its memory exists. The first process of an
 * installation makes the snapshot.
 */
async function startPython(snapshotFolder: string | null): Promise<PyodideAPI> {
  if (snapshotFolder === null) return loadPyodide(OPTIONS);
  const path = join(snapshotFolder, `pyodide-${version}-${process.arch}.snapshot`);
  if (existsSync(path)) {
    try {
      return await loadPyodide({ ...OPTIONS, _loadSnapshot: readFileSync(path) });
    } catch {
      rmSync(path, { force: true });
    }
  }
  const python = await loadPyodide({ ...OPTIONS, _makeSnapshot: true });
  try {
    const unfinished = `${path}.${process.pid}`;
    mkdirSync(snapshotFolder, { recursive: true, mode: 0o700 });
    writeFileSync(unfinished, python.makeMemorySnapshot(), { mode: 0o600 });
    renameSync(unfinished, path);
  } catch (error) {
    // The next process starts as slowly as this one.
    console.error(error);
  }
  return python;
}

/**
 * Limits Python's memory. Growth beyond the limit fails like in a JavaScript engine, so that Python raises
 * MemoryError.
 */
function boundPythonMemory(maxBytes: number): void {
  const { prototype } = WebAssembly.Memory;
  const grow = prototype.grow;
  prototype.grow = function boundedGrow(this: WebAssembly.Memory, pages: number): number {
    if (this.buffer.byteLength + pages * PAGE_BYTES > maxBytes)
      throw new RangeError("out of memory");
    return grow.call(this, pages);
  };
}

/**
 * Removes Bun's interfaces and all ways to run text as code from the JavaScript that Python can reach. This
 * is a second barrier; the lock-down is effective without it.
 */
function closeToScripts(): void {
  const makers = [() => {}, async () => {}, function* () {}, async function* () {}];
  for (const maker of makers) {
    Reflect.defineProperty(Object.getPrototypeOf(maker), "constructor", { value: undefined });
  }
  for (const name of Reflect.ownKeys(Bun)) Reflect.deleteProperty(Bun, name);
  // Pyodide compares with the prototype.
  const closed = Object.assign(() => {}, { prototype: Function.prototype });
  globalThis.Function = closed as unknown as FunctionConstructor;
  const removed = ["process", "fetch", "Worker", "WebSocket", "eval", "ShadowRealm"];
  for (const name of removed) Reflect.deleteProperty(globalThis, name);
}

/** Sends the output of Python, up to a limit for each run. */
class Output {
  readonly #maxBytes: number;
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  restart(): void {
    this.#bytes = 0;
  }

  /** Reports all bytes as written, so that a program with too much output continues. */
  write(bytes: Uint8Array): number {
    // Sends one byte more than the limit, so that the gateway detects the cut.
    const rest = this.#maxBytes + 1 - this.#bytes;
    const piece = bytes.subarray(0, Math.max(0, rest));
    this.#bytes += piece.byteLength;
    if (piece.byteLength > 0) send(encodeFrame(REPORT.text, piece));
    return bytes.byteLength;
  }
}

function text(content: string): Uint8Array {
  return new TextEncoder().encode(content);
}

function send(frame: Uint8Array): void {
  for (let at = 0; at < frame.byteLength; ) at += writeSync(OUTPUT, frame, at);
}

await serve(JSON.parse(currentProcess.argv[2]!) as PythonSettings);
