import type { ByteBuffer } from "../../../lib/byte-buffer.ts";
import type { Clock } from "../../../lib/clock.ts";
import type {
  AnswerOptions,
  ChatEvent,
  ChatStream,
  ClientCompletion,
  PassedStream,
  PieceReader,
  ReadOptions,
  WholeChat,
} from "../../interface.ts";
import type { CompletionRender } from "../../thread-work.ts";
import { TypedStreamReader } from "../../typed-stream-reader.ts";
import { ChunkDecoder } from "./chunk-decoder.ts";
import type { FailureReader } from "./chunk-reader.ts";
import { normaliseCompletion } from "./raw-answers.ts";
import { StreamRewriter } from "./stream-rewriter.ts";
import { typedCompletion } from "./whole-answer.ts";

/** A whole answer in OpenAI's format. */
export class OpenAiCompletion implements WholeChat {
  readonly kind = "whole";
  readonly isLong = false;
  /** The provider's JSON, parsed and not validated. */
  readonly completion: unknown;
  readonly #requestId: string;

  constructor(completion: unknown, requestId: string) {
    this.completion = completion;
    this.#requestId = requestId;
  }

  render<Options, Result>(render: CompletionRender<Options, Result>, options: Options): Result {
    return render.render(typedCompletion(this.completion, this.#requestId), options);
  }

  passThrough({ requestId, hidesReasoning, nowSeconds }: ReadOptions): ClientCompletion {
    return normaliseCompletion(this.completion, requestId, hidesReasoning, nowSeconds);
  }
}

/** A stream in OpenAI's format. */
export class OpenAiStream implements ChatStream {
  readonly kind = "stream";
  readonly #bytes: PieceReader;
  readonly #clock: Clock;
  readonly #failureReader: FailureReader | undefined;

  constructor(bytes: PieceReader, clock: Clock, failureReader?: FailureReader) {
    this.#bytes = bytes;
    this.#clock = clock;
    this.#failureReader = failureReader;
  }

  events({ id }: Pick<AnswerOptions, "id">): PieceReader<readonly ChatEvent[]> {
    const decoder = new ChunkDecoder(id, this.#failureReader);
    return new TypedStreamReader(this.#bytes, decoder, this.#clock);
  }

  passThrough(options: AnswerOptions, output: ByteBuffer): PassedStream {
    const answer = new StreamRewriter(options, output, this.#failureReader);
    return { reader: this.#bytes, answer };
  }
}
