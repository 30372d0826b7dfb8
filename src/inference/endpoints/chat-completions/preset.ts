import { createCheck } from "../../../http/validate.ts";
import type { Preset } from "../../definitions/definition-cache.ts";
import { isOpenIn, membersOfPreset } from "../fill-preset.ts";
import type { ChatRequest } from "./request.ts";
import { chatCompletionBody } from "./schema.ts";

export const checkChat = createCheck(chatCompletionBody, "invalid_body", "Request body");

const INSTRUCTING: ReadonlySet<string> = new Set(["system", "developer"]);

/** Adds the members of a preset. Its system text becomes the first message if the request has no instructions. */
export function filledChat({ preset: _, ...request }: ChatRequest, preset: Preset): ChatRequest {
  const { messages } = request;
  const needsSystem = preset.system !== null && !messages.some(({ role }) => INSTRUCTING.has(role));
  return {
    ...request,
    ...membersOfPreset(preset, isOpenIn(request)),
    messages: needsSystem ? [{ role: "system", content: preset.system }, ...messages] : messages,
  };
}
