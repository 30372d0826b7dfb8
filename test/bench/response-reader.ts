/** What every answer of a load must look like. */
export interface ExpectedAnswer {
  readonly bodyBytes: number;
  /** How the body ends. */
  readonly ending: Buffer;
}

const LF = 10;
const STATUS_OK = "HTTP/1.1 200";
const END_OF_HEAD = "\r\n\r\n";

type Part = "head" | "body" | "chunk-size" | "chunk" | "chunk-end" | "trailer";

/**
 * Reads one answer after another off a connection, with as little work as can tell whether it is whole
 * and right: status 200, the expected length, the expected ending.
 */
export class ResponseReader {
  readonly #expected: ExpectedAnswer;
  #part: Part = "head";
  #head: Buffer | undefined;
  /** Of the body or chunk under way. */
  #remaining = 0;
  #bodyBytes = 0;
  #endingMatched = 0;
  #isOk = false;

  constructor(expected: ExpectedAnswer) {
    this.#expected = expected;
  }

  /** True once the answer is complete. */
  push(bytes: Buffer): boolean {
    let at = 0;
    if (this.#part === "head") {
      at = this.#readHead(bytes);
      if (at < 0) return false;
    }
    return this.#readBody(bytes, at);
  }

  /** Whether the answer that was just completed is the expected one; makes ready for the next. */
  take(): boolean {
    const { bodyBytes, ending } = this.#expected;
    const isRight =
      this.#isOk && this.#bodyBytes === bodyBytes && this.#endingMatched === ending.length;
    this.#part = "head";
    this.#bodyBytes = 0;
    this.#endingMatched = 0;
    return isRight;
  }

  /** For the message about a wrong answer. */
  get summary(): string {
    return `status ${this.#isOk ? 200 : "other than 200"}, ${this.#bodyBytes} bytes of ${this.#expected.bodyBytes}, ending ${this.#endingMatched === this.#expected.ending.length ? "right" : "wrong"}`;
  }

  /** Where the body begins in these bytes, -1 while the head is incomplete. */
  #readHead(bytes: Buffer): number {
    const before = this.#head?.length ?? 0;
    const whole = this.#head === undefined ? bytes : Buffer.concat([this.#head, bytes]);
    const end = whole.indexOf(END_OF_HEAD);
    if (end < 0) {
      this.#head = Buffer.from(whole);
      return -1;
    }
    this.#head = undefined;
    const head = whole.toString("latin1", 0, end).toLowerCase();
    this.#isOk = whole.toString("latin1", 0, STATUS_OK.length) === STATUS_OK;
    const length = head.indexOf("\r\ncontent-length:");
    this.#part = length < 0 ? "chunk-size" : "body";
    this.#remaining = length < 0 ? 0 : Number.parseInt(head.slice(length + 17), 10);
    return end + END_OF_HEAD.length - before;
  }

  #readBody(bytes: Buffer, start: number): boolean {
    let at = start;
    const end = bytes.length;
    if (this.#part === "body") {
      this.#consume(bytes, at, Math.min(end, at + this.#remaining));
      return this.#remaining === 0;
    }
    while (at < end) {
      if (this.#part === "chunk") {
        const stop = Math.min(end, at + this.#remaining);
        this.#consume(bytes, at, stop);
        at = stop;
        if (this.#remaining === 0) this.#part = "chunk-end";
        continue;
      }
      const byte = bytes[at++]!;
      if (byte !== LF) {
        if (this.#part === "chunk-size") this.#remaining = withHexDigit(this.#remaining, byte);
        continue;
      }
      if (this.#part === "trailer") return true;
      if (this.#part === "chunk-end") this.#part = "chunk-size";
      else this.#part = this.#remaining === 0 ? "trailer" : "chunk";
    }
    return false;
  }

  /** Counts payload, and compares what lies in the last bytes of the expected body. */
  #consume(bytes: Buffer, start: number, stop: number): void {
    const { bodyBytes, ending } = this.#expected;
    const count = stop - start;
    const endingStart = bodyBytes - ending.length;
    const from = Math.max(this.#bodyBytes, endingStart);
    const until = Math.min(this.#bodyBytes + count, bodyBytes);
    for (let offset = from; offset < until; offset++) {
      const byte = bytes[start + offset - this.#bodyBytes];
      if (byte === ending[offset - endingStart]) this.#endingMatched++;
    }
    this.#bodyBytes += count;
    this.#remaining -= count;
  }
}

function withHexDigit(value: number, byte: number): number {
  const isDigit = byte >= 48 && byte <= 57;
  const letter = byte | 32;
  if (isDigit) return value * 16 + byte - 48;
  return letter >= 97 && letter <= 102 ? value * 16 + letter - 87 : value;
}
