/*
 * Reads files from standard input, one after another, and writes their chunks to standard output as JSON lines.
 * It is a separate process without the gateway's environment, so that a hostile file can harm only this process.
 */
import { once } from "node:events";
import { constants, setPriority } from "node:os";
import { Worker } from "node:worker_threads";
import { chunkText } from "./chunk-text.ts";
import { documentText } from "./document-text.ts";
import type { ExtractedLine, ExtractionBounds, ExtractionOrder } from "./extraction.ts";
import { searchWords } from "./search-words.ts";
import { DocumentFault } from "./text-sink.ts";

/** Memory above which the process reads no further file. */
const REUSABLE_BYTES = 402_653_184;
const NEW_LINE = 0x0a;

async function serve(): Promise<void> {
  setPriority(constants.priority.PRIORITY_LOW);
  const bounds = JSON.parse(process.argv[2]!) as ExtractionBounds;
  const script = new URL("./extraction-watch.ts", import.meta.url);
  const watcher = new Worker(script, { workerData: bounds });
  await once(watcher, "message");
  const input = new Input(Bun.stdin.stream());
  for (;;) {
    const line = await input.line();
    if (line === undefined) process.exit(0);
    const order = JSON.parse(line) as ExtractionOrder;
    watcher.postMessage(true);
    await extract(await input.take(order.bytes), order);
    watcher.postMessage(false);
  }
}

async function extract(bytes: Uint8Array, order: ExtractionOrder): Promise<void> {
  const output = Bun.stdout.writer();
  const write = async (line: ExtractedLine): Promise<void> => {
    output.write(`${JSON.stringify(line)}\n`);
    await output.flush();
  };
  try {
    const isPage = "maxCharacters" in order;
    const text = await documentText(bytes, order.isHtml, isPage);
    if (isPage) {
      await write({ kind: "chunk", text: text.slice(0, order.maxCharacters), words: "" });
    } else {
      for (const chunk of chunkText(text, order)) {
        await write({ kind: "chunk", text: chunk, words: searchWords(chunk) });
      }
    }
    await write({ kind: "end", isLast: isGrown() });
  } catch (error) {
    if (!(error instanceof DocumentFault)) throw error;
    await write({ kind: "fault", code: error.code, message: error.message, isLast: isGrown() });
  }
}

function isGrown(): boolean {
  return process.memoryUsage.rss() > REUSABLE_BYTES;
}

/** Reads lines and byte sequences from a stream. */
class Input {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  #rest: Uint8Array = new Uint8Array();

  constructor(stream: ReadableStream<Uint8Array>) {
    this.#reader = stream.getReader();
  }

  /** Returns the next line, or undefined at the end of the stream. */
  async line(): Promise<string | undefined> {
    let end = this.#rest.indexOf(NEW_LINE);
    while (end < 0) {
      const { done, value } = await this.#reader.read();
      if (done) return undefined;
      this.#rest = Buffer.concat([this.#rest, value]);
      end = this.#rest.indexOf(NEW_LINE);
    }
    const line = new TextDecoder().decode(this.#rest.subarray(0, end));
    this.#rest = this.#rest.subarray(end + 1);
    return line;
  }

  async take(count: number): Promise<Uint8Array> {
    const content = new Uint8Array(count);
    let length = 0;
    while (length < count) {
      if (this.#rest.length === 0) {
        const { done, value } = await this.#reader.read();
        // The input ended inside a file, so the gateway has ended.
        if (done) process.exit(0);
        this.#rest = value;
      }
      const piece = this.#rest.subarray(0, count - length);
      content.set(piece, length);
      length += piece.length;
      this.#rest = this.#rest.subarray(piece.length);
    }
    return content;
  }
}

await serve();
