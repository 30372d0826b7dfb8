/** A stream of bytes in the hands of a test. */
export class ScriptedSound {
  readonly response: Response;
  isCancelled = false;
  /** Bytes that were taken of it. */
  takenBytes = 0;
  #controller!: ReadableStreamDefaultController<Uint8Array>;
  #supply: (() => Uint8Array | undefined) | undefined;

  constructor(contentType: string | null = "audio/mpeg") {
    const body = new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          this.#controller = controller;
        },
        pull: (controller) => this.#pull(controller),
        cancel: () => {
          this.isCancelled = true;
        },
      },
      { highWaterMark: 0 },
    );
    this.response = new Response(body, {
      headers: contentType === null ? {} : { "content-type": contentType },
    });
  }

  say(bytes: Uint8Array | string): this {
    this.#controller.enqueue(typeof bytes === "string" ? Buffer.from(bytes) : bytes);
    return this;
  }

  /** A piece for each time that more is asked for, until there is none. */
  supply(next: () => Uint8Array | undefined): this {
    this.#supply = next;
    return this;
  }

  end(): this {
    this.#controller.close();
    return this;
  }

  breakOff(): this {
    this.#controller.error();
    return this;
  }

  #pull(controller: ReadableStreamDefaultController<Uint8Array>): void {
    if (this.#supply === undefined) return;
    const bytes = this.#supply();
    if (bytes === undefined) {
      controller.close();
      return;
    }
    this.takenBytes += bytes.length;
    controller.enqueue(bytes);
  }
}

export interface AskedSpeech {
  readonly provider: string;
  readonly path: string;
  readonly headers: Headers;
  readonly body: Record<string, unknown>;
}

type SpeechAnswerer = (request: AskedSpeech) => Response | Promise<Response>;

/** Providers of speech, named by the first part of the path, which answer as a test says. */
export function startSpeechUpstream() {
  const asked: AskedSpeech[] = [];
  const answers: Record<string, SpeechAnswerer> = {};
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    idleTimeout: 0,
    // Without it Bun prints each connection that is cut on purpose.
    development: false,
    async fetch(request) {
      const { pathname, search } = new URL(request.url);
      const provider = pathname.split("/")[1]!;
      const body = (await request.json()) as Record<string, unknown>;
      const one = { provider, path: `${pathname}${search}`, headers: request.headers, body };
      asked.push(one);
      return answers[provider]!(one);
    },
  });
  return {
    asked,
    answers,
    origin: `http://127.0.0.1:${server.port}`,
    address: (provider: string) => `http://127.0.0.1:${server.port}/${provider}/v1`,
    stop: () => server.stop(true),
  };
}

export const event = (data: object): string => `data: ${JSON.stringify(data)}\n\n`;

/** An event of OpenAI's stream of speech. */
export const delta = (bytes: Uint8Array | string): string =>
  event({ type: "speech.audio.delta", audio: Buffer.from(bytes).toString("base64") });

export const done = (inputTokens: number, outputTokens: number): string =>
  event({
    type: "speech.audio.done",
    usage: {
      input_tokens: inputTokens,
      output_tokens: outputTokens,
      total_tokens: inputTokens + outputTokens,
    },
  });

/** The beginning of a file of PCM that takes `bytesPerSecond`. */
export function waveHeading(bytesPerSecond: number): Uint8Array {
  const heading = Buffer.alloc(44);
  heading.write("RIFF\xff\xff\xff\xffWAVEfmt ", "latin1");
  heading.writeUInt32LE(bytesPerSecond, 28);
  return heading;
}
