import { isFields } from "../../../lib/json.ts";
import type { ChatEvent, ToolCall, TypedCompletion } from "../../interface.ts";
import { AnswerRead } from "../../thread-work.ts";
import { parsedAnswer } from "../../transport/bounded-body.ts";
import { brokenAnswer } from "../../transport/call-failures.ts";
import type { FailureContext } from "../../transport/status-failure.ts";
import { failureOfErrorBody } from "../failure-mapping.ts";
import {
  annotationOf,
  finishReason,
  isBilledSearch,
  isChatItem,
  isEmptyReasoning,
  logprobsOf,
  reportedUsage,
} from "./answer-parts.ts";
import { BLANK_LINE, encryptedDetail, summaryDetail, textDetail } from "./reasoning-items.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Each call has one choice. */
const choice = 0;

/** Reads a response that was not streamed. Throws ProviderFailure if it is invalid or failed. */
export const wholeResponse = new AnswerRead(
  import.meta.url,
  (text, { failureContext }: { readonly failureContext: FailureContext }) =>
    completionOf(parsedAnswer(text), failureContext),
);

function completionOf(response: unknown, context: FailureContext): TypedCompletion {
  if (!isFields(response)) throw brokenAnswer("JSON that is not an object");
  if (isFields(response.error)) throw failureOfErrorBody({ error: response.error }, context);
  const { output, status, created_at: created } = response;
  if (!Array.isArray(output)) throw brokenAnswer("a response without output");
  if (status !== "completed" && status !== "incomplete") {
    throw brokenAnswer("a response that has not ended");
  }
  const items = output.filter(isFields);
  const toolCalls = items.filter(isFunctionCall).map(callOf);
  const pieces = piecesOf(items, toolCalls);
  const texts = pieces.filter((piece) => piece.type === "text");
  const thoughts = pieces.filter((piece) => piece.type === "reasoning");
  const text = joined(texts);
  const reasoning = joined(thoughts);
  const refusal = joined(pieces.filter((piece) => piece.type === "refusal"));
  const ending = { hasCalls: toolCalls.length > 0, isRefused: refusal !== "" };
  return {
    choices: [
      {
        text: text === "" && (ending.hasCalls || ending.isRefused) ? undefined : text,
        reasoning: reasoning === "" ? undefined : reasoning,
        reasoningDetails: filled(thoughts.flatMap(({ details = [] }) => details)),
        refusal: refusal === "" ? undefined : refusal,
        toolCalls: filled(toolCalls),
        annotations: filled(texts.flatMap(({ annotations = [] }) => annotations)),
        logprobs: logprobsOf(texts.flatMap(({ logprobs }) => partsOf(tokensIn(logprobs)))),
        pieces,
        finish: finishReason(response, ending),
      },
    ],
    usage: reportedUsage(response.usage, items.filter(isBilledSearch).length),
    created: typeof created === "number" && Number.isSafeInteger(created) ? created : undefined,
  };
}

function joined(pieces: readonly { readonly text: string }[]): string {
  return pieces.map(({ text }) => text).join("");
}

function filled<One>(list: readonly One[]): readonly One[] | undefined {
  return list.length > 0 ? list : undefined;
}

function partsOf(list: unknown): Fields[] {
  return Array.isArray(list) ? list.filter(isFields) : [];
}

function tokensIn(logprobs: unknown): unknown {
  return isFields(logprobs) ? logprobs.content : undefined;
}

/** Returns the content of the items as events, in their order. */
function piecesOf(items: readonly Fields[], toolCalls: readonly ToolCall[]): ChatEvent[] {
  let calls = 0;
  return items.flatMap((raw, item): ChatEvent[] => {
    if (!isChatItem(raw) || (raw.type === "reasoning" && isEmptyReasoning(raw))) {
      const steps = ["added", "done"] as const;
      return steps.map((step) => ({ type: "foreign_item", choice, item, step, fields: raw }));
    }
    if (raw.type === "reasoning") return thoughtOf(raw, item);
    if (raw.type === "message") {
      return partsOf(raw.content).flatMap((part) => textEvents(part, item, raw.phase));
    }
    const index = calls++;
    return [{ type: "tool_call", choice, index, ...toolCalls[index] }];
  });
}

function isFunctionCall(item: Fields): boolean {
  return item.type === "function_call" && isChatItem(item);
}

function textEvents(part: Fields, item: number, phase: unknown): ChatEvent[] {
  const { type, text, refusal } = part;
  if (type === "refusal" && typeof refusal === "string") {
    return [{ type, choice, item, text: refusal }];
  }
  if (type !== "output_text" || typeof text !== "string") return [];
  const annotations = filled(partsOf(part.annotations).flatMap(annotationOf));
  const logprobs = logprobsOf(partsOf(part.logprobs));
  const event = { type: "text", choice, item, text, annotations, logprobs } as const;
  return [typeof phase === "string" ? { ...event, phase } : event];
}

function thoughtOf(raw: Fields, item: number): ChatEvent[] {
  const summary = textsIn(raw.summary).map((text, part) => {
    const partText = part === 0 ? text : BLANK_LINE + text;
    return { text: partText, detail: summaryDetail(item, partText, part) };
  });
  const plainText = textsIn(raw.content).join(BLANK_LINE);
  const content =
    plainText === "" ? [] : [{ text: plainText, detail: textDetail(item, plainText) }];
  const encrypted = encryptedDetail(item, raw);
  const all = [...summary, ...content, ...(encrypted ? [{ text: "", detail: encrypted }] : [])];
  return all.map(({ text, detail }) => ({
    type: "reasoning",
    choice,
    item,
    text,
    details: [detail],
  }));
}

function textsIn(parts: unknown): string[] {
  const texts = partsOf(parts).map(({ text }) => text);
  return texts.filter((text) => typeof text === "string");
}

function callOf({ call_id: id, name, arguments: text }: Fields): ToolCall {
  if (typeof id !== "string" || typeof name !== "string") {
    throw brokenAnswer("a call without id or name");
  }
  return { id, name, arguments: typeof text === "string" && text !== "" ? text : "{}" };
}
