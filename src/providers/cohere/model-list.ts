import { isFields } from "../../lib/json.ts";

/** Largest page size of the model list. The default is 20 models. */
const QUERY = "page_size=1000";

/** Returns the URL of the model list. It is in version 1 of the API, and the base URL names version 2. */
export function modelListUrl(baseUrl: string): string {
  const { origin, pathname, search } = new URL(baseUrl);
  const path = pathname.replace(/\/v2\/?$/, "/v1").replace(/\/$/, "");
  return `${origin}${path}/models${search === "" ? "?" : `${search}&`}${QUERY}`;
}

/** Parameter names that other model lists use, by Cohere's name in `features`. */
const PARAMETERS: Readonly<Record<string, string>> = {
  tools: "tools",
  json_mode: "response_format",
  json_schema: "response_format",
  reasoning: "reasoning",
};

/**
 * Returns the entries of an answer to `GET /v1/models` (https://docs.cohere.com/reference/list-models), with
 * the member names of other model lists. Skips deprecated models, and models that neither chat nor embed.
 * Returns undefined if the answer is not such a list.
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
        supported_parameters: features.flatMap((feature) => PARAMETERS[String(feature)] ?? []),
        architecture: { input_modalities: inputs },
      },
    ];
  });
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}
