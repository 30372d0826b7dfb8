import type { Preparation } from "../../call/endpoint.ts";
import type { CallGuard } from "../../call/guard/call-guard.ts";
import { GatewayError } from "../../../lib/errors.ts";
import { type ExactInteger, exact } from "../../../lib/exact-integer.ts";
import type { ChatEvent, ClientCompletion, PieceReader } from "../../../providers/interface.ts";
import { citationsIn } from "../../tools/citations.ts";
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
    return this.#isCharged;
  };

  /** Of an answer: each link of the text to a result, and each result that it does not link to. */
  annotationsOf(text: string): unknown[] {
    const sources = this.#results.map(({ url, title }) => ({ kind: "url", url, title }) as const);
    const cited = citationsIn(text, sources) as readonly UrlCitation[];
    const linked = new Set(cited.map(({ url_citation: { url } }) => url));
    const contents = new Map(this.#results.map(({ url, text: page }) => [url, page]));
    const others = sources
      .filter(({ url }) => !linked.has(url))
      .map(({ url, title }) => ({
        type: "url_citation",
        url_citation: { url, title, start_index: 0, end_index: 0 },
      }));
    return [...cited, ...others].map(({ type, url_citation: citation }) => {
      const content = contents.get(citation.url)!.slice(0, MAX_SHOWN_CHARACTERS).toWellFormed();
      return { type, url_citation: { ...citation, content } };
    });
  }

  /** Adds the annotations to a whole answer in the client's form. */
  async annotate({ body }: ClientCompletion, guard?: Pick<CallGuard, "added">): Promise<void> {
    // A long one lies in bytes, which a thread has made.
    if (body instanceof Uint8Array) return;
    const { choices } = body as { readonly choices: unknown };
    for (const { message } of choices as readonly { message: Record<string, unknown> }[]) {
      const found = this.annotationsOf(typeof message.content === "string" ? message.content : "");
      const own = guard === undefined ? found : ((await guard.added(found)) as unknown[]);
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

interface UrlCitation {
  readonly type: string;
  readonly url_citation: { readonly url: string; readonly [member: string]: unknown };
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
