import { GatewayError } from "../../../lib/errors.ts";
import { type ExactInteger, exact } from "../../../lib/exact-integer.ts";
import type { ChatEvent, ClientCompletion, PieceReader } from "../../../providers/interface.ts";
import type { Preparation } from "../../call/endpoint.ts";
import type { CallGuard } from "../../call/guard/call-guard.ts";
import { citationsIn } from "../../tools/citations.ts";
import { SearchFailed } from "../../tools/web-search/search-backend.ts";
import {
  maxResultBytes,
  type SearchResult,
  type WebSearch,
} from "../../tools/web-search/web-search.ts";
import { framedResults } from "../../tools/web-search/web-search-tool.ts";
import type { WebPlan } from "./web-plugin.ts";

/** Maximum bytes of the text that introduces the results, including the date. */
const MAX_FRAME_BYTES = 512;
/** Maximum characters of a page that an annotation shows. */
const MAX_SHOWN_CHARACTERS = 500;

/** The web search of one chat. It runs once, before the first provider call, and all candidates use its results. */
export class ChatSearch {
  readonly #search: WebSearch;
  readonly #plan: WebPlan;
  readonly #question: string;
  #results: readonly SearchResult[] = [];
  #addition = "";
  #isCharged = false;

  /** Throws 400 if the question is empty. */
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

  /** Maximum price of the search, before the fee. */
  get boundFemto(): ExactInteger {
    return exact(this.#search.priceFemto);
  }

  /** Maximum number of bytes that the search adds to the prompt. */
  get boundBytes(): number {
    const { options, prompt = "" } = this.#plan;
    const ofResults = options.maxResults * (maxResultBytes(options) + 1);
    return MAX_FRAME_BYTES + Buffer.byteLength(prompt) + ofResults;
  }

  /** The searches to add to the usage of the answer. */
  get quantities(): { readonly webSearches?: number } {
    return this.#isCharged ? { webSearches: 1 } : {};
  }

  /** The text added to the prompt. Empty before the search. */
  get addition(): string {
    return this.#addition;
  }

  /**
   * Runs the search. If the search fails, the added text reports this to the model, and the chat continues
   * without results.
   */
  readonly run: Preparation = async (call) => {
    try {
      this.#results = await this.#search.search(this.#question, this.#plan.options, call);
      this.#isCharged = true;
      const introduction = this.#plan.prompt ?? introductionOf(new Date());
      this.#addition = `${introduction}\n\n${framedResults(this.#results)}`;
    } catch (error) {
      if (!(error instanceof SearchFailed)) throw error;
      this.#addition = `${error.message} Answer without it, and say so if the answer needs it.`;
    }
    return this.#isCharged;
  };

  /**
   * Returns the annotations of an answer: one for each link from its text to a result, and one for each
   * result without a link.
   */
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

  /** Adds the annotations to a complete answer in the client's form. */
  async annotate(
    { body }: ClientCompletion,
    guard?: Pick<CallGuard, "screenAdded">,
  ): Promise<void> {
    // A thread renders long answers as bytes, which are not annotated.
    if (body instanceof Uint8Array) return;
    const { choices } = body as { readonly choices: unknown };
    for (const { message } of choices as readonly { message: Record<string, unknown> }[]) {
      const annotations = this.annotationsOf(
        typeof message.content === "string" ? message.content : "",
      );
      const checked =
        guard === undefined ? annotations : ((await guard.screenAdded(annotations)) as unknown[]);
      const before = Array.isArray(message.annotations) ? message.annotations : [];
      if (checked.length > 0) message.annotations = [...before, ...checked];
    }
  }

  /** Returns the streamed answer with annotations before the end of each choice. */
  annotatedEvents(events: PieceReader<readonly ChatEvent[]>): PieceReader<readonly ChatEvent[]> {
    return new AnnotatedEvents(events, this);
  }
}

function introductionOf(now: Date): string {
  const today = now.toISOString().slice(0, 10);
  return `The web was searched for the user's question on ${today}. Use the results below if they help, and cite each page that the answer uses by a Markdown link to its address, named by its domain.`;
}

interface UrlCitation {
  readonly type: string;
  readonly url_citation: { readonly url: string; readonly [member: string]: unknown };
}

class AnnotatedEvents implements PieceReader<readonly ChatEvent[]> {
  readonly #events: PieceReader<readonly ChatEvent[]>;
  readonly #search: ChatSearch;
  /** Texts so far by choice. */
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
