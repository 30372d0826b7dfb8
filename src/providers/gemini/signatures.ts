import { isFields } from "../../lib/json.ts";
import type { ReasoningDetail } from "../interface.ts";
import type { Part } from "./media-part.ts";

type Fields = Readonly<Record<string, unknown>>;

/**
 * Format name of the reasoning details that carry thought signatures. A model needs each signature back with
 * the part that carried it (https://ai.google.dev/gemini-api/docs/thought-signatures). Clients receive
 * signatures as reasoning details in OpenRouter's form. Those of calls are also in
 * `extra_content.google.thought_signature`, as in Google's OpenAI-compatible API, which several SDKs
 * preserve. The gateway accepts both.
 */
export const DETAIL_FORMAT = "google-gemini-v1";

/** Google's documented value for calls whose signature is lost or that another model made. */
export const NO_SIGNATURE = "skip_thought_signature_validator";

/** Base64, or NO_SIGNATURE. Other providers have other forms in the same member. */
const SIGNATURE = /^[\w+/=-]+$/;

/** Returns the `extra_content` of a tool call with its signature. */
export function extraContent(signature: string): Fields {
  return { google: { thought_signature: signature } };
}

/** Returns the detail for a piece of a thought summary and its signature. */
export function thoughtDetail(text: string, signature: string | undefined): ReasoningDetail {
  return {
    type: "reasoning.text",
    text,
    ...(signature !== undefined && { signature }),
    format: DETAIL_FORMAT,
  };
}

/** Returns the detail for a signature. @param callId the call that carried it; undefined if a text did */
export function signatureDetail(data: string, callId?: string): ReasoningDetail {
  return {
    type: "reasoning.encrypted",
    data,
    ...(callId !== undefined && { id: callId }),
    format: DETAIL_FORMAT,
  };
}

/** Reasoning that a client sends back in an assistant message. */
export interface EarlierReasoning {
  readonly thoughts: readonly Part[];
  /** Signature of the text. */
  readonly signature: string | undefined;
  signatureOfCall(call: Fields): string | undefined;
}

/** Reads the details of Gemini's format and skips others. */
export function earlierReasoning(message: Fields): EarlierReasoning {
  const thoughts: { text: string; thought: true; thoughtSignature?: string }[] = [];
  const callSignatures = new Map<unknown, string>();
  let signature: string | undefined;
  const details = Array.isArray(message.reasoning_details) ? message.reasoning_details : [];
  for (const detail of details) {
    if (!isFields(detail) || detail.format !== DETAIL_FORMAT) continue;
    if (detail.type === "reasoning.encrypted" && isText(detail.data)) {
      if (isText(detail.id)) callSignatures.set(detail.id, detail.data);
      else signature = detail.data;
    }
    if (detail.type !== "reasoning.text") continue;
    // The pieces of a stream are one thought until a signature ends it.
    const last = thoughts.at(-1);
    const text = typeof detail.text === "string" ? detail.text : "";
    const piece = last === undefined || last.thoughtSignature !== undefined ? undefined : last;
    if (piece !== undefined) piece.text += text;
    else thoughts.push({ text, thought: true });
    if (isText(detail.signature)) thoughts.at(-1)!.thoughtSignature = detail.signature;
  }
  return {
    thoughts,
    signature,
    signatureOfCall: (call) => signatureInside(call) ?? callSignatures.get(call.id),
  };
}

function signatureInside({ extra_content: extra }: Fields): string | undefined {
  const google = isFields(extra) ? extra.google : undefined;
  const signature = isFields(google) ? google.thought_signature : undefined;
  return isText(signature) && SIGNATURE.test(signature) ? signature : undefined;
}

function isText(value: unknown): value is string {
  return typeof value === "string" && value !== "";
}
