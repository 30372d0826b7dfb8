import type { Preparation } from "../../calls/endpoint.ts";
import { GatewayError } from "../../lib/errors.ts";
import { type ExactInteger, exact } from "../../lib/exact-integer.ts";
import type { ChatEvent, PieceReader } from "../../providers/interface.ts";
import { SearchFailed } from "../../tools/web-search/search-backend.ts";
import {
  maxResultBytes,
  type SearchResult,
  type WebSearch,
} from "../../tools/web-search/web-search.ts";
import { framedResults } from "../../tools/web-search/web-search-tool.ts";
import type { WebPlan } from "./web-plugin.ts";

/** Of a text around the results, the date included. */
const MAX_FRAME_BYTES = 512;
/** Of a page, as an annotation shows it. */
const MAX_SHOWN_CHARACTERS = 500;
const MAX_ANNOTATIONS = 100;

/** The search of the web for one chat: once, before a provider is called, whichever one answers then. */
export class ChatSearch {
  readonly #search: WebSearch;
  readonly #plan: WebPlan;
  readonly #question: string;
  #results: readonly SearchResult[] = [];
  #addition = "";
  #isCharged = false;

  /** Throws 400 where there is nothing to search for. */
  constructor(search: WebSearch, plan: WebPlan, question: string) {
    if (question === "") {
      const { param } = plan;
      const message = `${param}: the last message of the user has no text to search the web for.`;
      throw new GatewayError("invalid_body", message, { param });
    }
    this.#search = search;
    this.#plan = plan;
    this.#question = question;
  }

  /** The most that it costs, before the fee. */
  get boundFemto(): ExactInteger {
    return exact(this.#search.priceFemto);
  }

  /** The most that it adds to the prompt. */
  get boundBytes(): number {
    const { options, prompt = "" } = this.#plan;
    const ofResults = options.maxResults * (maxResultBytes(options) + 1);
    return MAX_FRAME_BYTES + Buffer.byteLength(prompt) + ofResults;
  }

  /** Part of the usage of the answer. */
  get quantities(): { readonly webSearches?: number } {
    return this.#isCharged ? { webSearches: 1 } : {};
  }

  /** What the model is given besides the request; empty before the search. */
  get addition(): string {
    return this.#addition;
  }

  /** A search that fails is reported to the model, and the answer goes on without it. */
  readonly run: Preparation = async (call) => {
    try {
      this.#results = await this.#search.search(this.#question, this.#plan.options, call);
      this.#isCharged = true;
      const introduction = this.#plan.prompt ?? introductionOf(new Date());
      this.#addition = `${introduction}\n\n${framedResults(this.#results)}`;
    } catch (error) {
      if (!(error instanceof SearchFailed)) throw error;
      this.#addition = `${error.message} Answer without it, and say so where the answer needs it.`;
    }
  };

  /** Of an answer: each link of the text to a result, and each result that it does not link to. */
  annotationsOf(text: string): unknown[] {
    const annotations: unknown[] = [];
    for (const result of this.#results) {
      const places = placesOf(result.url, text);
      for (const place of places.length === 0 ? [NO_PLACE] : places) {
        if (annotations.length === MAX_ANNOTATIONS) return annotations;
        annotations.push(annotationOf(result, place));
      }
    }
    return annotations;
  }

  /** Adds the annotations to a whole answer in the client's form. */
  annotate({ choices }: Readonly<Record<string, unknown>>): void {
    for (const { message } of choices as readonly { message: Record<string, unknown> }[]) {
      const own = this.annotationsOf(typeof message.content === "string" ? message.content : "");
      const before = Array.isArray(message.annotations) ? message.annotations : [];
      if (own.length > 0) message.annotations = [...before, ...own];
    }
  }

  /** A streamed answer with the annotations before the end of each choice. */
  annotatedEvents(events: PieceReader<readonly ChatEvent[]>): PieceReader<readonly ChatEvent[]> {
    return new AnnotatedEvents(events, this);
  }
}

function introductionOf(now: Date): string {
  const today = now.toISOString().slice(0, 10);
  return `The web was searched for the user's question on ${today}. Use the results below where they help, and cite each page that the answer uses by a Markdown link to its address, named by its domain.`;
}

interface Place {
  readonly start: number;
  readonly end: number;
}

const NO_PLACE: Place = { start: 0, end: 0 };

/** Where a text names the address: the whole link where it is one of Markdown. */
function placesOf(url: string, text: string): Place[] {
  // Models leave the slash out that an address of a site ends with.
  const address = url.endsWith("/") ? url.slice(0, -1) : url;
  const places: Place[] = [];
  for (let at = text.indexOf(address); at >= 0; at = text.indexOf(address, at + address.length)) {
    let end = at + address.length;
    if (text[end] === "/") end += 1;
    // A longer address is another page.
    if (/[\w%?#&=/-]/.test(text[end] ?? "")) continue;
    const isTarget = text.slice(at - 2, at) === "](" && text[end] === ")";
    const label = isTarget ? text.lastIndexOf("[", at - 2) : -1;
    places.push(label < 0 ? { start: at, end } : { start: label, end: end + 1 });
    if (places.length === MAX_ANNOTATIONS) break;
  }
  return places;
}

function annotationOf({ url, title, text }: SearchResult, { start, end }: Place): unknown {
  const content = text.slice(0, MAX_SHOWN_CHARACTERS).toWellFormed();
  const citation = { url, title, content, start_index: start, end_index: end };
  return { type: "url_citation", url_citation: citation };
}

class AnnotatedEvents implements PieceReader<readonly ChatEvent[]> {
  readonly #events: PieceReader<readonly ChatEvent[]>;
  readonly #search: ChatSearch;
  /** By choice. */
  readonly #texts = new Map<number, string>();

  constructor(events: PieceReader<readonly ChatEvent[]>, search: ChatSearch) {
    this.#events = events;
    this.#search = search;
  }

  get isOver(): boolean {
    return this.#events.isOver === true;
  }

  take(): readonly ChatEvent[] | undefined {
    const events = this.#events.take?.();
    return events && this.#annotated(events);
  }

  async read(): Promise<{ done: boolean; value?: readonly ChatEvent[] }> {
    const { done, value } = await this.#events.read();
    return value === undefined ? { done } : { done, value: this.#annotated(value) };
  }

  cancel(): Promise<void> {
    return this.#events.cancel();
  }

  #annotated(events: readonly ChatEvent[]): readonly ChatEvent[] {
    return events.flatMap((event): ChatEvent[] => {
      if (event.type === "text") {
        const before = this.#texts.get(event.choice) ?? "";
        this.#texts.set(event.choice, before + event.text);
      }
      if (event.type !== "finish") return [event];
      const { choice } = event;
      const annotations = this.#search.annotationsOf(this.#texts.get(choice) ?? "");
      if (annotations.length === 0) return [event];
      return [{ type: "text", choice, text: "", annotations }, event];
    });
  }
}
