import { isFields } from "../../lib/json.ts";
import type { ModerationCall, Provider, ProviderSettings } from "../interface.ts";
import { brokenAnswer, failureOfThrown } from "../transport/call-failures.ts";
import { endpointUrl } from "../transport/request-head.ts";
import type { TypedWire } from "../transport/typed-wire.ts";
import { failureInside } from "./failure-mapping.ts";

/**
 * Moderation over OpenAI's wire format (https://platform.openai.com/docs/api-reference/moderations/create), which
 * Mistral has too, without `flagged`. Rejects with ProviderFailure.
 */
export function openAiModerate(
  wire: TypedWire,
  settings: ProviderSettings,
  headers: Readonly<Record<string, string>>,
): NonNullable<Provider["moderate"]> {
  const url = endpointUrl(settings.baseUrl, "/moderations");
  return async (call: ModerationCall) => {
    const { model, texts } = call;
    try {
      const body = JSON.stringify({ model, input: texts });
      const answer = await wire.object({ method: "POST", url, headers, body }, call);
      const failure = failureInside(answer, wire.failureContext);
      if (failure !== undefined) throw failure;
      const { results } = answer;
      // A text without a result is one that was not looked at.
      if (!Array.isArray(results) || results.length !== texts.length) {
        throw brokenAnswer("another number of results than of texts");
      }
      // All of them, so that a broken one is never passed over.
      return results.map(isFlagged).includes(true);
    } catch (error) {
      throw failureOfThrown(error, call.signal);
    }
  };
}

function isFlagged(result: unknown): boolean {
  const { flagged, categories } = isFields(result) ? result : {};
  if (typeof flagged === "boolean") return flagged;
  if (flagged !== undefined || !isFields(categories)) throw brokenAnswer("a result of no decision");
  const found = Object.values(categories);
  if (found.length > 0 && found.every((one) => typeof one === "boolean")) {
    return found.includes(true);
  }
  throw brokenAnswer("a result of no decision");
}
