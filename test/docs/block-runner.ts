import type { Subprocess } from "bun";

const BLOCK_MS = 60_000;
const SEPARATOR = "\x1e";

export interface BlockResult {
  readonly output: string;
  readonly errors: string;
  /** 0 if the block ended normally; undefined if it ended its process or took too long. */
  readonly status: number | undefined;
}

/** A process that runs blocks one after another. */
export class BlockRunner {
  readonly #child: Subprocess<"pipe", "pipe", "pipe">;
  #output = "";
  #errors = "";
  #hasEnded = false;
  #notify = (): void => {};

  constructor(
    command: readonly string[],
    options: { readonly cwd: string; readonly env: Record<string, string | undefined> },
  ) {
    this.#child = Bun.spawn([...command], {
      ...options,
      stdio: ["pipe", "pipe", "pipe"],
      // A group, so that what a block leaves running ends with its page.
      detached: true,
    });
    void this.#collect(this.#child.stdout, (text) => {
      this.#output += text;
    });
    void this.#collect(this.#child.stderr, (text) => {
      this.#errors += text;
    });
    void this.#child.exited.then(() => {
      this.#hasEnded = true;
      this.#notify();
    });
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** Runs the block that a line of the runner's protocol names. */
  async run(request: string): Promise<BlockResult> {
    this.#output = "";
    this.#errors = "";
    this.#child.stdin.write(`${request}\n`);
    await this.#child.stdin.flush();
    const timeout = setTimeout(() => this.stop(), BLOCK_MS);
    try {
      while (!this.#hasEnded && this.#output.split(SEPARATOR).length < 3) {
        await new Promise<void>((resolve) => {
          this.#notify = resolve;
        });
      }
    } finally {
      clearTimeout(timeout);
    }
    const [output = "", status] = this.#output.split(SEPARATOR);
    return {
      output,
      errors: this.#errors,
      status: status === undefined ? undefined : Number(status),
    };
  }

  stop(): void {
    try {
      process.kill(-this.#child.pid, "SIGKILL");
    } catch {
      // The group has ended.
    }
  }

  async #collect(stream: ReadableStream<Uint8Array>, add: (text: string) => void): Promise<void> {
    const decoder = new TextDecoder();
    for await (const bytes of stream) {
      add(decoder.decode(bytes, { stream: true }));
      this.#notify();
    }
  }
}
