import { isFields } from "../../lib/json.ts";

/** One page holds twenty models unless more are asked for; a thousand are the most. */
const QUERY = "page_size=1000";

/** The list of models is in the first version of the API, which the address of calls does not name. */
export function modelListUrl(baseUrl: string): string {
  const { origin, pathname, search } = new URL(baseUrl);
  const path = pathname.replace(/\/v2\/?$/, "/v1").replace(/\/$/, "");
  return `${origin}${path}/models${search === "" ? "?" : `${search}&`}${QUERY}`;
}

/** By the names of `features`, those that other lists have for the same. */
const PARAMETERS: Readonly<Record<string, string>> = {
  tools: "tools",
  json_mode: "response_format",
  json_schema: "response_format",
  reasoning: "reasoning",
};

/**
 * The entries of an answer to `GET /v1/models` (https://docs.cohere.com/reference/list-models) under the names
 * that other lists have for the same. Models that neither chat nor embed, and those that are deprecated, are left
 * out. Undefined where it is no such list.
 */
export function cohereModelEntries(answer: unknown): Record<string, unknown>[] | undefined {
  if (!isFields(answer) || !Array.isArray(answer.models)) return undefined;
  return answer.models.filter(isFields).flatMap((model) => {
    const endpoints: readonly unknown[] = listOf(model.endpoints);
    const features = listOf(model.features);
    const chats = endpoints.includes("chat");
    if (model.is_deprecated === true || !(chats || endpoints.includes("embed"))) return [];
    const inputs = features.includes("vision") ? ["text", "image"] : ["text"];
    return [
      {
        id: model.name,
        ...(!chats && { type: "embedding" }),
        context_length: model.context_length,
        supported_parameters: features.flatMap((one) => PARAMETERS[String(one)] ?? []),
        architecture: { input_modalities: inputs },
      },
    ];
  });
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}
