import { isFields } from "../../lib/json.ts";

/** One page holds fifty models unless more are asked for; a thousand are the most. */
export const MODEL_LIST_QUERY = "pageSize=1000";

/**
 * The entries of an answer to `GET /models` (https://ai.google.dev/api/models#Model) under the names that other
 * lists have for the same. Models that take neither chats nor texts to embed are left out. Undefined where it
 * is no such list.
 */
export function geminiModelEntries(answer: unknown): Record<string, unknown>[] | undefined {
  if (!isFields(answer) || !Array.isArray(answer.models)) return undefined;
  return answer.models.filter(isFields).flatMap((model) => {
    const { name, supportedGenerationMethods: listed } = model;
    const methods: readonly unknown[] = Array.isArray(listed) ? listed : [];
    const chats = methods.includes("generateContent");
    if (typeof name !== "string" || !(chats || methods.includes("embedContent"))) return [];
    return [
      {
        id: name.replace(/^models\//, ""),
        ...(!chats && { type: "embedding" }),
        context_length: model.inputTokenLimit,
        max_output_tokens: model.outputTokenLimit,
        supported_parameters: model.thinking === true ? ["reasoning"] : [],
      },
    ];
  });
}
