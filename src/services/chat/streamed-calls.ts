import { isFields } from "./provider-content.ts";
import { asFunctionCall } from "./tool-calls.ts";

type Fields = Record<string, unknown>;

/**
 * The tool calls of one choice, which clients join by their indexes. Some providers send calls without
 * any: an id that is new begins the next call, and what has no id belongs to the last one.
 */
export class StreamedCalls {
  readonly #indexes = new Map<string, number>();
  #last = -1;

  /** The calls of one delta, with their indexes. */
  completed(calls: readonly unknown[]): unknown[] {
    return calls.map((call, position) => {
      // Several without ids in one delta can only be told apart by their places.
      const place = calls.length > 1 ? position : Math.max(0, this.#last);
      return isFields(call) ? this.#numbered(call, place) : call;
    });
  }

  #numbered(call: Fields, place: number): Fields {
    // A piece of a call's arguments has neither id nor type.
    if (isId(call.id)) asFunctionCall(call);
    const index = Number.isSafeInteger(call.index)
      ? (call.index as number)
      : this.#indexOf(call.id, place);
    if (isId(call.id)) this.#indexes.set(call.id, index);
    this.#last = Math.max(this.#last, index);
    return call.index === index ? call : { ...call, index };
  }

  #indexOf(id: unknown, place: number): number {
    return isId(id) ? (this.#indexes.get(id) ?? this.#last + 1) : place;
  }
}

function isId(id: unknown): id is string {
  return typeof id === "string" && id !== "";
}
