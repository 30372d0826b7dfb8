import { GatewayError } from "../../../lib/errors.ts";
import { turnItems } from "./item-references.ts";
import {
  type Item,
  type Part,
  type ResponsesBody,
  type ResponsesTurn,
  typeOfItem,
} from "./request.ts";

/** The endpoint, as the hash of an idempotent call names it. */
export const COMPACT_ROUTE = "POST /v1/responses/compact";

/** Asks for what goes on in the place of a conversation. */
const ORDER = `Summarise the conversation so far, so that it can go on from the summary alone. Write:
- what the user wants, with every requirement, preference and correction, in the user's words where they matter;
- what was done and found, with exact names, paths, identifiers, numbers and code that will be needed again;
- decisions and their reasons, and what failed and why;
- what stands open, and the next steps.
Write the summary alone, without remarks on it.`;

/** What of a request for a compaction its call takes, besides the items. */
const CARRIED = [
  "model",
  "models",
  "provider",
  "session_id",
  "trace",
  "metadata",
  "route_explain",
  "instructions",
  "max_output_tokens",
  "prompt_cache_key",
  "prompt_cache_retention",
  "service_tier",
  "safety_identifier",
  "user",
] as const satisfies readonly (keyof ResponsesBody)[];

/** Characters of an item in the words of JSON that a summary is made from. */
const MAX_TOLD = 8_192;

/**
 * The turn that a model is asked for to compact a conversation: its items, and the order to summarise them. It offers
 * no tools, so that the answer is text; calls and their outputs become text, which every provider takes. Throws
 * 400 where there is nothing to compact.
 */
export function compactionOf(turn: ResponsesTurn): ResponsesTurn {
  const { body } = turn;
  const carried: Record<string, unknown> = {};
  for (const name of CARRIED) if (body[name] !== undefined) carried[name] = body[name];
  const items = turnItems(turn).flatMap(told);
  if (items.length === 0) {
    const message = 'Request body field "input": there is nothing to compact';
    throw new GatewayError("invalid_body", message, { param: "input" });
  }
  const input = [...items, { type: "message", role: "user", content: ORDER }];
  return { body: { ...carried, input, store: false }, earlier: [], referable: [] };
}

function told(item: Item): Item[] {
  const type = typeOfItem(item);
  switch (type) {
    case "message":
      return [item];
    case "reasoning":
      return [];
    case "function_call":
    case "custom_tool_call":
      return [said("assistant", `Called ${item.name}: ${item.arguments ?? item.input}`)];
    case "function_call_output":
    case "custom_tool_call_output":
      return [said("user", ["The call returned:", ...partsOf(item.output)])];
    default: {
      const { id: _, type: __, ...rest } = item;
      return [said("assistant", `${type}: ${JSON.stringify(rest).slice(0, MAX_TOLD)}`)];
    }
  }
}

function said(role: "assistant" | "user", content: string | readonly (string | Part)[]): Item {
  if (typeof content === "string") return { type: "message", role, content };
  const parts = content.map((part) =>
    typeof part === "string" ? { type: "input_text", text: part } : part,
  );
  return { type: "message", role, content: parts };
}

function partsOf(output: unknown): readonly (string | Part)[] {
  return Array.isArray(output) ? (output as Part[]) : [String(output)];
}
