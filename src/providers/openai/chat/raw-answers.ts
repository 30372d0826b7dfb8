import type { GrowingBytes } from "../../../lib/growing-bytes.ts";
import type {
  AnswerOptions,
  ClientCompletion,
  PieceReader,
  RawCompletion,
  RawStream,
  ReadOptions,
} from "../../interface.ts";
import { normaliseCompletion } from "./normalise-completion.ts";
import { type FailureReader, StreamRewriter } from "./stream-rewriter.ts";

/** A whole answer in OpenAI's wire format. */
export function rawCompletion(completion: unknown): RawCompletion {
  return { kind: "completion", completion, read };
}

/** Shared by all answers: one is made for each call. */
function read(this: RawCompletion, options: ReadOptions): ClientCompletion {
  const { requestId, hidesReasoning, nowSeconds } = options;
  return normaliseCompletion(this.completion, requestId, hidesReasoning, nowSeconds);
}

/** Where the bytes of a stream come from, as a stream or piece by piece. */
export interface StreamSource {
  readonly body: ReadableStream<Uint8Array> | null;
  reader?(): PieceReader;
}

/** A stream in OpenAI's wire format. */
export class OpenAiStream implements RawStream {
  readonly kind = "stream";
  readonly #source: StreamSource;
  readonly #failureReader: FailureReader | undefined;

  constructor(source: StreamSource, failureReader?: FailureReader) {
    this.#source = source;
    this.#failureReader = failureReader;
  }

  get body(): ReadableStream<Uint8Array> {
    return this.#source.body!;
  }

  reader(): PieceReader {
    return this.#source.reader?.() ?? this.body.getReader();
  }

  rewriter(options: AnswerOptions, output: GrowingBytes): StreamRewriter {
    return new StreamRewriter(options, output, this.#failureReader);
  }
}
