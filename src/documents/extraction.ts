import { SCRIPT_ENVIRONMENT } from "../lib/script-environment.ts";
import type { ChunkSize } from "./chunk-text.ts";
import { DocumentFault } from "./text-sink.ts";

export interface ExtractedChunk {
  readonly text: string;
  /** The result of `searchWords` for the text. */
  readonly words: string;
}

/** A JSON line from the extraction process. The last line of a file is a fault or an end. */
export type ExtractedLine =
  | ({ readonly kind: "chunk" } & ExtractedChunk)
  | ({ readonly kind: "fault" } & Pick<DocumentFault, "code" | "message"> & ExtractionEnd)
  | ({ readonly kind: "end" } & ExtractionEnd);

interface ExtractionEnd {
  /** True if the process has grown and must not get another file. */
  readonly isLast: boolean;
}

/** A JSON line to the extraction process. The file's bytes follow it. */
export type ExtractionOrder = {
  readonly bytes: number;
  readonly isHtml: boolean;
} & (ChunkSize | PageBeginning);

/** Requests one chunk: the start of a page's main content. */
interface PageBeginning {
  readonly maxCharacters: number;
}

export interface ExtractionBounds {
  /** Memory limit of the process, which itself uses 80 MB. */
  readonly maxMemoryBytes: number;
  /** Time limit for one file, from its last byte on. */
  readonly maxMs: number;
}

const BOUNDS: ExtractionBounds = { maxMemoryBytes: 1_073_741_824, maxMs: 120_000 };
/** Largest file. Files are parsed as a whole, in a multiple of their size. */
export const MAX_DOCUMENT_BYTES = 134_217_728;
const SCRIPT = Bun.fileURLToPath(new URL("./extraction-main.ts", import.meta.url));
const MAX_LINE_CHARACTERS = 16_777_216;
const MAX_IDLE_MS = 10_000;

/**
 * Extracts the text of files in separate processes, with limits on time, memory and output. A process reads one
 * file at a time. It is reused if the last file ended without an error.
 */
export class Extraction {
  readonly #bounds: ExtractionBounds;
  readonly #idle: ExtractionProcess[] = [];
  readonly #all = new Set<ExtractionProcess>();

  constructor(bounds: ExtractionBounds = BOUNDS) {
    this.#bounds = bounds;
  }

  /** Yields the chunks of a file. Throws DocumentFault, the error of `content`, or the signal's reason. */
  async *chunksOf(
    content: ReadableStream<Uint8Array>,
    order: ExtractionOrder,
    signal: AbortSignal,
  ): AsyncGenerator<ExtractedChunk> {
    const used = this.#idle.pop() ?? this.#launch();
    used.wake();
    const kill = (): void => used.kill();
    signal.addEventListener("abort", kill, { once: true });
    let isReusable = false;
    try {
      signal.throwIfAborted();
      const end = yield* used.chunksOf(content, order);
      isReusable = !end.isLast;
      if (end.kind === "fault") throw new DocumentFault(end.code, end.message);
    } catch (error) {
      signal.throwIfAborted();
      throw error;
    } finally {
      signal.removeEventListener("abort", kill);
      if (isReusable && !signal.aborted) {
        this.#idle.push(used);
        used.rest(MAX_IDLE_MS, () => this.#end(used));
      } else this.#end(used);
    }
  }

  /** Returns the start of the main content of a page or another document. Rejects like `chunksOf`. */
  async pageText(
    bytes: Uint8Array,
    { isHtml, maxCharacters }: { readonly isHtml: boolean } & PageBeginning,
    signal: AbortSignal,
  ): Promise<string> {
    const content = new Blob([bytes as Uint8Array<ArrayBuffer>]).stream();
    const order = { bytes: bytes.byteLength, isHtml, maxCharacters };
    let read = "";
    for await (const { text } of this.chunksOf(content, order, signal)) read = text;
    return read;
  }

  /** Ends all processes. Files that are being read fail. */
  close(): void {
    for (const process of this.#all) this.#end(process);
  }

  #launch(): ExtractionProcess {
    const launched = new ExtractionProcess(this.#bounds);
    this.#all.add(launched);
    return launched;
  }

  #end(ended: ExtractionProcess): void {
    const at = this.#idle.indexOf(ended);
    if (at >= 0) this.#idle.splice(at, 1);
    this.#all.delete(ended);
    ended.kill();
  }
}

class ExtractionProcess {
  readonly #child: Bun.Subprocess<"pipe", "pipe", "ignore">;
  readonly #lines: AsyncGenerator<string>;
  readonly #bounds: ExtractionBounds;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isGone = false;
  /** Ends the wait for a piece that the process does not read. */
  #onGone: (() => void) | undefined;

  constructor(bounds: ExtractionBounds) {
    this.#bounds = bounds;
    const command = [process.execPath, "--no-env-file", SCRIPT, JSON.stringify(bounds)];
    this.#child = Bun.spawn(command, {
      env: SCRIPT_ENVIRONMENT,
      stdio: ["pipe", "pipe", "ignore"],
    });
    this.#lines = linesOf(this.#child.stdout);
    void this.#child.exited.then(() => {
      this.#isGone = true;
      this.#onGone?.();
    });
  }

  kill(): void {
    this.wake();
    this.#child.kill("SIGKILL");
  }

  rest(ms: number, onOver: () => void): void {
    this.#timer = setTimeout(onOver, ms);
    this.#timer.unref();
  }

  wake(): void {
    clearTimeout(this.#timer);
  }

  /**
   * Yields the chunks of a file and returns the last line. Throws DocumentFault if the process ended before that
   * line.
   */
  async *chunksOf(
    content: ReadableStream<Uint8Array>,
    order: ExtractionOrder,
  ): AsyncGenerator<ExtractedChunk, Exclude<ExtractedLine, { kind: "chunk" }>> {
    const startedMs = performance.now();
    const fed = this.#feed(content, order);
    fed.catch(() => this.kill());
    for (;;) {
      const { done, value } = await this.#lines.next();
      if (done === true) break;
      const line = JSON.parse(value) as ExtractedLine;
      if (line.kind !== "chunk") return line;
      yield line;
    }
    await fed;
    const { maxMs, maxMemoryBytes } = this.#bounds;
    const isLate = performance.now() - startedMs >= maxMs;
    const most = isLate ? `${maxMs / 1_000} seconds` : `${maxMemoryBytes / 1_048_576} MB of memory`;
    throw new DocumentFault("invalid_file", `Reading the file takes more than ${most}.`);
  }

  /**
   * Sends a file to the process. Rejects with the error of `content`. If the process has ended, sending stops and
   * its output reports the end.
   */
  async #feed(content: ReadableStream<Uint8Array>, order: ExtractionOrder): Promise<void> {
    await this.#send(`${JSON.stringify(order)}\n`);
    for await (const piece of content) {
      await this.#send(piece);
      if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    }
  }

  async #send(piece: string | Uint8Array): Promise<void> {
    if (this.#isGone) return;
    const { stdin, exited } = this.#child;
    // A race with `exited` itself would keep a reference to each piece until the process ends.
    const gone = Promise.withResolvers<void>();
    this.#onGone = gone.resolve;
    try {
      await Promise.race([Promise.all([stdin.write(piece), stdin.flush()]), gone.promise]);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EPIPE") throw error;
      await exited;
    }
  }
}

async function* linesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const piece of stream) {
    const lines = (rest + decoder.decode(piece, { stream: true })).split("\n");
    rest = lines.pop()!;
    if (rest.length > MAX_LINE_CHARACTERS) throw new Error("a chunk is longer than any can be");
    yield* lines;
  }
}
