import { EventSplitter, textOfLatin1 } from "../../../lib/event-splitter.ts";
import { isFields } from "../../../lib/json.ts";
import type { AnswerGatherer, CacheFormat, HitFacts } from "../../call/endpoint.ts";
import { decidingFields, keptJson, longIdentity } from "../chat-completions/kept-answer.ts";
import type { AcceptedResponse, AdmittedResponse } from "./accepted.ts";
import { itemEvents } from "./item-events.ts";
import type { ResponseContents, ResponseStoreWriter } from "./keep-response.ts";
import {
  nameOfResponse,
  type ResponseParts,
  responseHead,
  usageOf,
  withOutput,
} from "./response-json.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Fields that decide nothing about an answer, but for its form and whether it is stored; the models are named apart. */
const UNDECIDING: ReadonlySet<string> = new Set([
  ...["model", "models", "stream", "stream_options", "store"],
  ...["user", "metadata", "trace", "session_id", "route_explain"],
  ...["prompt_cache_key", "prompt_cache_retention", "safety_identifier"],
]);
/** Tools whose runs change something elsewhere, or leave what a later request works with. */
const ACTING_TOOLS: ReadonlySet<string> = new Set(["mcp", "code_interpreter"]);
/** The event that ends a whole stream holds the response, with what that repeats of its request. */
const MAX_EVENT_BYTES = 2_097_152;

/** What is kept of a response: its output, named after it, and how it ended. */
interface Kept extends Pick<ResponseParts, "status" | "reason"> {
  readonly id: string;
  readonly output: readonly Fields[];
}

/** Responses in the response cache. Each hit is a response of its own, which is stored where its request asks for it. */
export class KeptResponses implements CacheFormat<AcceptedResponse> {
  readonly #keeping: ResponseStoreWriter;

  constructor(keeping: ResponseStoreWriter) {
    this.#keeping = keeping;
  }

  identity({ fields, facts, body, background, place }: AcceptedResponse): Fields | undefined {
    const acts = facts.hosted?.tools.some(([, { type }]) => ACTING_TOOLS.has(type)) === true;
    if (acts || background !== undefined) return undefined;
    // A conversation goes on with each answer: the same request is another one then.
    if (place?.conversationId !== undefined) return undefined;
    return longIdentity(fields) ?? decidingFields(body!, UNDECIDING);
  }

  ofWhole(body: string | Uint8Array): string | undefined {
    const response = keptJson(body);
    return response && keptOf(response);
  }

  gather(): AnswerGatherer {
    return new ResponseGatherer();
  }

  whole(kept: string, request: AcceptedResponse, facts: HitFacts): string {
    const { head, output } = contentsOf(kept, request, facts);
    return withOutput(head, output);
  }

  stream(kept: string, request: AcceptedResponse, facts: HitFacts): string {
    const { status } = JSON.parse(kept) as Kept;
    const frames: string[] = [];
    const send = (type: string, members: string) => {
      const json = `{"type":"${type}","sequence_number":${frames.length},${members}}`;
      frames.push(`event: ${type}\ndata: ${json}\n\n`);
    };
    const begun = withOutput(headOf({ status: "in_progress" }, request, facts), "");
    send("response.created", `"response":${begun}`);
    send("response.in_progress", `"response":${begun}`);
    for (const [index, item] of itemsOf(kept, facts).entries()) itemEvents(item, index, send);
    send(`response.${status}`, `"response":${this.whole(kept, request, facts)}`);
    return `${frames.join("")}data: [DONE]\n\n`;
  }

  keep(kept: string, admitted: AdmittedResponse, facts: HitFacts) {
    return this.#keeping.keep(admitted, contentsOf(kept, admitted.request, facts));
  }
}

/** An answer that the limit of its own request ended would end there again. */
function keptOf({ id, status, incomplete_details: why, output }: Fields): string | undefined {
  const reason = isFields(why) ? (why.reason as string) : undefined;
  const isWhole =
    status === "completed" || (status === "incomplete" && reason === "max_output_tokens");
  if (!isWhole || typeof id !== "string" || !Array.isArray(output)) return undefined;
  return JSON.stringify({ id, status, reason, output } satisfies Kept);
}

function contentsOf(
  kept: string,
  request: AcceptedResponse,
  facts: HitFacts,
): ResponseContents & { readonly output: string } {
  const head = headOf(JSON.parse(kept) as Kept, request, facts);
  const items = itemsOf(kept, facts);
  return { head, output: items.map((item) => JSON.stringify(item)).join(",") };
}

/** Items are named after the response that they are of. */
function itemsOf(kept: string, { requestId }: HitFacts): Fields[] {
  const { id, output } = JSON.parse(kept) as Kept;
  const before = nameOfResponse(id);
  return output.map((item) =>
    typeof item.id === "string"
      ? { ...item, id: item.id.replace(before, nameOfResponse(requestId)) }
      : item,
  );
}

function headOf(
  { status, reason }: Pick<Kept, "status" | "reason">,
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

/** The last event of a stream holds its response. */
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
      // It is too long to be kept.
      this.#isBroken = true;
    }
  }

  end(): string | undefined {
    if (this.#isBroken || this.#last === undefined) return undefined;
    const event = keptJson(textOfLatin1(this.#last));
    return event && isFields(event.response) ? keptOf(event.response) : undefined;
  }
}
