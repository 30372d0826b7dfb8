import { EventSplitter, textOfLatin1 } from "../../../lib/event-splitter.ts";
import { isFields } from "../../../lib/json.ts";
import type { AnswerGatherer, CacheFormat, HitFacts } from "../../call/endpoint.ts";
import {
  decidingFields,
  longIdentity,
  parseCacheableJson,
} from "../chat-completions/cache-format.ts";
import type { AcceptedResponse, AdmittedResponse } from "./accepted.ts";
import { itemEvents } from "./item-events.ts";
import {
  nameOfResponse,
  type ResponseParts,
  responseHead,
  usageOf,
  withOutput,
} from "./response-json.ts";
import type { ResponseContents, ResponseStoreWriter } from "./response-store-writer.ts";

type Fields = Readonly<Record<string, unknown>>;

/**
 * Fields that change only the form of an answer or whether it is stored, and not its content. The models are
 * part of the identity separately.
 */
const FORM_FIELDS: ReadonlySet<string> = new Set([
  ...["model", "models", "stream", "stream_options", "store"],
  ...["user", "metadata", "trace", "session_id", "route_explain"],
  ...["prompt_cache_key", "prompt_cache_retention", "safety_identifier"],
]);
/** Tools whose runs change something elsewhere, or leave state for a later request. */
const ACTING_TOOLS: ReadonlySet<string> = new Set(["mcp", "code_interpreter"]);
/**
 * Maximum bytes of an event. The last event of a stream contains the response, including the parts that
 * repeat the request.
 */
const MAX_EVENT_BYTES = 2_097_152;

/** The cached parts of a response: its output, the id on which item ids are based, and its end. */
interface CachedParts extends Pick<ResponseParts, "status" | "reason"> {
  readonly id: string;
  readonly output: readonly Fields[];
}

/** Responses in the response cache. Each hit is a new response, which is stored if its request says so. */
export class ResponsesCacheFormat implements CacheFormat<AcceptedResponse> {
  readonly #storeWriter: ResponseStoreWriter;

  constructor(storeWriter: ResponseStoreWriter) {
    this.#storeWriter = storeWriter;
  }

  identity({ fields, facts, body, background, position }: AcceptedResponse): Fields | undefined {
    const acts = facts.hosted?.tools.some(([, { type }]) => ACTING_TOOLS.has(type)) === true;
    if (acts || background !== undefined) return undefined;
    // Each answer extends the conversation, so the same request is different the next time.
    if (position?.conversationId !== undefined) return undefined;
    return longIdentity(fields) ?? decidingFields(body!, FORM_FIELDS);
  }

  ofWhole(body: string | Uint8Array): string | undefined {
    const response = parseCacheableJson(body);
    return response && cacheableJson(response);
  }

  gather(): AnswerGatherer {
    return new ResponseGatherer();
  }

  whole(cached: string, request: AcceptedResponse, facts: HitFacts): string {
    const { head, output } = contentsOf(cached, request, facts);
    return withOutput(head, output);
  }

  stream(cached: string, request: AcceptedResponse, facts: HitFacts): string {
    const { status } = JSON.parse(cached) as CachedParts;
    const frames: string[] = [];
    const send = (type: string, members: string) => {
      const json = `{"type":"${type}","sequence_number":${frames.length},${members}}`;
      frames.push(`event: ${type}\ndata: ${json}\n\n`);
    };
    const begun = withOutput(headOf({ status: "in_progress" }, request, facts), "");
    send("response.created", `"response":${begun}`);
    send("response.in_progress", `"response":${begun}`);
    for (const [index, item] of itemsOf(cached, facts).entries()) itemEvents(item, index, send);
    send(`response.${status}`, `"response":${this.whole(cached, request, facts)}`);
    return `${frames.join("")}data: [DONE]\n\n`;
  }

  storeAnswer(cached: string, admitted: AdmittedResponse, facts: HitFacts) {
    return this.#storeWriter.storeAnswer(admitted, contentsOf(cached, admitted.request, facts));
  }
}

/**
 * Returns the cached form of a response, or undefined if the response cannot be cached. An answer that ended at
 * the output limit is cached, because the same request would end there again.
 */
function cacheableJson({
  id,
  status,
  incomplete_details: why,
  output,
}: Fields): string | undefined {
  const reason = isFields(why) ? (why.reason as string) : undefined;
  const isWhole =
    status === "completed" || (status === "incomplete" && reason === "max_output_tokens");
  if (!isWhole || typeof id !== "string" || !Array.isArray(output)) return undefined;
  return JSON.stringify({ id, status, reason, output } satisfies CachedParts);
}

function contentsOf(
  cached: string,
  request: AcceptedResponse,
  facts: HitFacts,
): ResponseContents & { readonly output: string } {
  const head = headOf(JSON.parse(cached) as CachedParts, request, facts);
  const items = itemsOf(cached, facts);
  return { head, output: items.map((item) => JSON.stringify(item)).join(",") };
}

/** Returns the cached items with ids of the new response. */
function itemsOf(cached: string, { requestId }: HitFacts): Fields[] {
  const { id, output } = JSON.parse(cached) as CachedParts;
  const before = nameOfResponse(id);
  return output.map((item) =>
    typeof item.id === "string"
      ? { ...item, id: item.id.replace(before, nameOfResponse(requestId)) }
      : item,
  );
}

function headOf(
  { status, reason }: Pick<CachedParts, "status" | "reason">,
  { facts, createdAt }: AcceptedResponse,
  { requestId, model, usage, nowSeconds }: HitFacts,
): string {
  return responseHead({
    name: nameOfResponse(requestId),
    createdAt,
    completedAt: status === "completed" ? nowSeconds : null,
    status,
    reason,
    model,
    usage: status === "in_progress" ? null : usageOf(usage, 0),
    echo: facts.echo,
  });
}

const LAST_EVENT = /^\{"type":"response\.(?:completed|incomplete)"/;

/** Gathers a stream by its last event, which contains the response. */
class ResponseGatherer implements AnswerGatherer {
  readonly #splitter = new EventSplitter(MAX_EVENT_BYTES);
  #last: string | undefined;
  #isBroken = false;

  push(bytes: Uint8Array): void {
    if (this.#isBroken) return;
    try {
      this.#splitter.push(bytes, (data) => {
        if (LAST_EVENT.test(data)) this.#last = data;
      });
    } catch {
      // The stream is too long for the cache.
      this.#isBroken = true;
    }
  }

  end(): string | undefined {
    if (this.#isBroken || this.#last === undefined) return undefined;
    const event = parseCacheableJson(textOfLatin1(this.#last));
    return event && isFields(event.response) ? cacheableJson(event.response) : undefined;
  }
}
