import { GatewayError } from "../../../lib/errors.ts";
import { turnItems } from "./item-references.ts";
import {
  type Item,
  type Part,
  type ResponsesBody,
  type ResponsesTurn,
  typeOfItem,
} from "./request.ts";

/** The name of the endpoint in the hash of an idempotent request. */
export const COMPACT_ROUTE = "POST /v1/responses/compact";

/** Instructs the model to summarise a conversation. */
const ORDER = `Summarise the conversation so far, so that it can continue from the summary alone. Write:
- what the user wants, with every requirement, preference and correction, in the user's words if they matter;
- what was done and found, with exact names, paths, identifiers, numbers and code that will be needed again;
- decisions and their reasons, and what failed and why;
- open questions, and the next steps.
Write the summary alone, without remarks on it.`;

/** Fields of the request that the summarising call uses, besides the items. */
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

/** Characters of an item's JSON that the model reads for the summary. */
const MAX_ITEM_CHARACTERS = 8_192;

/**
 * Returns the turn that makes a model compact a conversation: its items, and the instruction to summarise
 * them. It offers no tools, so that the answer is text. Calls and their outputs become text, which every
 * provider accepts. Throws 400 if there is nothing to compact.
 */
export function compactionOf(turn: ResponsesTurn): ResponsesTurn {
  const { body } = turn;
  const carried: Record<string, unknown> = {};
  for (const name of CARRIED) if (body[name] !== undefined) carried[name] = body[name];
  const items = turnItems(turn).flatMap(asMessages);
  if (items.length === 0) {
    const message = 'Request body field "input": there is nothing to compact';
    throw new GatewayError("invalid_body", message, { param: "input" });
  }
  const input = [...items, { type: "message", role: "user", content: ORDER }];
  return { body: { ...carried, input, store: false }, earlier: [], referable: [] };
}

function asMessages(item: Item): Item[] {
  const type = typeOfItem(item);
  switch (type) {
    case "message":
      return [item];
    case "reasoning":
      return [];
    case "function_call":
    case "custom_tool_call":
      return [messageItem("assistant", `Called ${item.name}: ${item.arguments ?? item.input}`)];
    case "function_call_output":
    case "custom_tool_call_output":
      return [messageItem("user", ["The call returned:", ...partsOf(item.output)])];
    default: {
      const { id: _, type: __, ...rest } = item;
      return [
        messageItem("assistant", `${type}: ${JSON.stringify(rest).slice(0, MAX_ITEM_CHARACTERS)}`),
      ];
    }
  }
}

function messageItem(
  role: "assistant" | "user",
  content: string | readonly (string | Part)[],
): Item {
  if (typeof content === "string") return { type: "message", role, content };
  const parts = content.map((part) =>
    typeof part === "string" ? { type: "input_text", text: part } : part,
  );
  return { type: "message", role, content: parts };
}

function partsOf(output: unknown): readonly (string | Part)[] {
  return Array.isArray(output) ? (output as Part[]) : [String(output)];
}
