import type { Call } from "./behaviour.ts";
import { asArray, asObject, type JsonObject } from "./json.ts";
import { completed } from "./scripted.ts";
import type { Answer } from "./wire.ts";

const SAFE = { filtered: false, severity: "safe" };
const FILTER_RESULTS = { hate: SAFE, self_harm: SAFE, sexual: SAFE, violence: SAFE };
const EMPTY_HEAD = { id: "", object: "", created: 0, model: "" };

/** In what Azure's stream differs from OpenAI's (Azure OpenAI, "Content filtering" and "Content streaming"). */
export function azureAnswer(call: Call): Answer {
  const prompt = { prompt_index: 0, content_filter_results: FILTER_RESULTS };
  const opening = { ...EMPTY_HEAD, choices: [], prompt_filter_results: [prompt] };
  const asynchronousFilter = {
    ...EMPTY_HEAD,
    choices: [
      {
        index: 0,
        finish_reason: null,
        content_filter_results: FILTER_RESULTS,
        content_filter_offsets: { check_offset: 0, start_offset: 0, end_offset: 44 },
      },
    ],
  };
  return completed(call, {
    chunks: (chunks) => {
      const filtered = chunks.map(withFilterResults);
      return [opening, ...filtered.slice(0, 2), asynchronousFilter, ...filtered.slice(2)];
    },
    whole: (body) => ({ ...withFilterResults(body), prompt_filter_results: [prompt] }),
  });
}

function withFilterResults(body: JsonObject): JsonObject {
  const choices = asArray(body.choices).map((choice) => ({
    ...asObject(choice),
    content_filter_results: FILTER_RESULTS,
  }));
  return { ...body, choices };
}
