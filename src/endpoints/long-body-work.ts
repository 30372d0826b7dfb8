import { textOfShared } from "../http/read-body.ts";
import { BodyRender, type ChatRequestFields } from "../providers/chat-body.ts";
import { exportOf, type ThreadOutcome, threadOutcome } from "../providers/thread-work.ts";
import type { LongBodyCall } from "./long-bodies.ts";

/** What is special about the long bodies of one endpoint, in the thread. */
export interface LongBodyForm {
  /** The checks that any request passes, in their order, and what the event loop needs. Throws what refuses it. */
  read(text: string): { readonly request: unknown; readonly facts: unknown };
  /** Of a body that has passed them. */
  parse(text: string): unknown;
  /** What a BodyRender gets. */
  fieldsOf(request: never, shape: never): ChatRequestFields;
}

type RenderCall = Extract<LongBodyCall, { readonly kind: "body.render" }>;

/**
 * Requests that were read and not rendered yet, so that most bodies are parsed once; a body that is missing
 * here is parsed again. Bounded by the bytes that they were parsed from.
 */
const MAX_PARSED_BYTES = 67_108_864;

/** What a work thread does with long bodies. Throws what refuses a body. */
export class LongBodyWork {
  readonly #forms: Readonly<Record<string, LongBodyForm>>;
  readonly #parsed = new Map<number, { readonly request: unknown; readonly byteLength: number }>();
  #parsedBytes = 0;

  /** @param forms by the names that calls give them */
  constructor(forms: Readonly<Record<string, LongBodyForm>>) {
    this.#forms = forms;
  }

  do(call: LongBodyCall): unknown {
    if (call.kind === "body.render") return this.#render(call);
    const { id, form, bytes } = call;
    const { request, facts } = this.#forms[form]!.read(textOfShared(bytes));
    this.#keep(id, request, bytes.byteLength);
    return facts;
  }

  async #render(call: RenderCall): Promise<ThreadOutcome> {
    const { id, bytes, shape, module, options } = call;
    const form = this.#forms[call.form]!;
    const renderer = await exportOf<BodyRender<unknown, unknown>>(module, BodyRender);
    const request = this.#take(id) ?? form.parse(textOfShared(bytes));
    return threadOutcome(() =>
      renderer.render(form.fieldsOf(request as never, shape as never), options),
    );
  }

  #keep(id: number, request: unknown, byteLength: number): void {
    this.#parsed.set(id, { request, byteLength });
    this.#parsedBytes += byteLength;
    for (const oldest of this.#parsed.keys()) {
      if (this.#parsedBytes <= MAX_PARSED_BYTES) break;
      this.#take(oldest);
    }
  }

  #take(id: number): unknown {
    const found = this.#parsed.get(id);
    if (found === undefined) return undefined;
    this.#parsed.delete(id);
    this.#parsedBytes -= found.byteLength;
    return found.request;
  }
}
