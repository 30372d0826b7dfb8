import type { PieceReader } from "../interface.ts";
import type { decoderOf } from "./content-decoding.ts";
import type { ProviderResponse } from "./provider-response.ts";
import { type BodySource, ResponseBody } from "./response-body.ts";
import type { ResponseHead } from "./response-head.ts";

/** A body, with the head that came before it. */
export class ExchangeResponse extends ResponseBody implements ProviderResponse {
  readonly status: number;
  readonly headers: ResponseHead;
  readonly hasBody: boolean;
  readonly #decode: ReturnType<typeof decoderOf>;
  #stream: ReadableStream<Uint8Array> | undefined;

  constructor(
    source: BodySource,
    head: ResponseHead,
    hasBody: boolean,
    decode: ReturnType<typeof decoderOf>,
  ) {
    super(source);
    this.status = head.status;
    this.headers = head;
    this.hasBody = hasBody;
    this.#decode = decode;
  }

  get body(): ReadableStream<Uint8Array> | null {
    if (!this.hasBody) return null;
    if (this.#stream === undefined) {
      const raw = this.stream();
      this.#stream = this.#decode === undefined ? raw : this.#decode(raw);
    }
    return this.#stream;
  }

  override wholeText(maxBytes: number): string | undefined {
    return this.#decode === undefined ? super.wholeText(maxBytes) : undefined;
  }

  override reader(): PieceReader {
    return this.#decode === undefined ? super.reader() : this.body!.getReader();
  }

  override text(): Promise<string> {
    if (!this.hasBody) return Promise.resolve("");
    return this.#decode === undefined ? super.text() : this.#expandedText();
  }

  async #expandedText(): Promise<string> {
    return new Response(this.body).text();
  }
}
