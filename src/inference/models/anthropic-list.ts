import type { CatalogueModel } from "../../lib/catalogue-model.ts";
import { GatewayError } from "../../lib/errors.ts";

/** Models of a page where the request does not say how many. */
export const ANTHROPIC_PAGE = 20;

/** A model as Anthropic describes it (https://platform.claude.com/docs/en/api/models). */
interface AnthropicModel {
  readonly type: "model";
  readonly id: string;
  readonly display_name: string;
  readonly created_at: string;
  readonly lifecycle: "active" | "retired";
  readonly max_input_tokens: number;
  readonly max_tokens: number;
}

interface AnthropicModelList {
  readonly data: readonly AnthropicModel[];
  /** In the direction that is paged in. */
  readonly has_more: boolean;
  readonly first_id: string | null;
  readonly last_id: string | null;
}

export interface AnthropicPage {
  readonly limit?: number;
  readonly after_id?: string;
  readonly before_id?: string;
}

/** Whether a request comes from a client of Anthropic's API, which names the version of that. */
export function asksAsAnthropic(request: Request): boolean {
  return request.headers.has("anthropic-version");
}

/** Throws 400 invalid_query for a cursor that is none of the models, or two of them. */
export function anthropicList(
  models: readonly CatalogueModel[],
  { limit = ANTHROPIC_PAGE, after_id: after, before_id: before }: AnthropicPage,
): AnthropicModelList {
  if (after !== undefined && before !== undefined) {
    throw invalid("before_id", "it cannot be combined with after_id");
  }
  const end = before === undefined ? models.length : indexOf(models, "before_id", before);
  const behind = after === undefined ? 0 : indexOf(models, "after_id", after) + 1;
  const first = before === undefined ? behind : Math.max(0, end - limit);
  const page = models.slice(first, Math.min(end, first + limit));
  return {
    data: page.map(anthropicModel),
    has_more: before === undefined ? first + page.length < models.length : first > 0,
    first_id: page[0]?.id ?? null,
    last_id: page.at(-1)?.id ?? null,
  };
}

export function anthropicModel(model: CatalogueModel): AnthropicModel {
  return {
    type: "model",
    id: model.id,
    display_name: model.name,
    created_at: new Date(model.created * 1_000).toISOString(),
    lifecycle: model.isActive ? "active" : "retired",
    max_input_tokens: model.contextLength,
    max_tokens: model.maxOutputTokens,
  };
}

function indexOf(models: readonly CatalogueModel[], param: string, id: string): number {
  const index = models.findIndex((model) => model.id === id);
  if (index < 0) throw invalid(param, "there is no such model in the list");
  return index;
}

function invalid(param: string, what: string): GatewayError {
  return new GatewayError("invalid_query", `Query parameter "${param}": ${what}.`, { param });
}
