import type { CatalogueModel } from "../../lib/catalogue-model.ts";
import { GatewayError } from "../../lib/errors.ts";

/** Models of a page if the request has no limit. */
export const ANTHROPIC_PAGE = 20;

/** A model in the format of Anthropic's API (https://platform.claude.com/docs/en/api/models). */
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
  /** True if there are more models in the direction of paging. */
  readonly has_more: boolean;
  readonly first_id: string | null;
  readonly last_id: string | null;
}

export interface AnthropicPage {
  readonly limit?: number;
  readonly after_id?: string;
  readonly before_id?: string;
}

/** Returns true if a request comes from a client of Anthropic's API, which sends the API version. */
export function isAnthropicClient(request: Request): boolean {
  return request.headers.has("anthropic-version");
}

/** Returns a page of models. Throws 400 invalid_query for an unknown cursor, or for two cursors. */
export function anthropicList(
  models: readonly CatalogueModel[],
  { limit = ANTHROPIC_PAGE, after_id: after, before_id: before }: AnthropicPage,
): AnthropicModelList {
  if (after !== undefined && before !== undefined) {
    throw invalid("before_id", "it cannot be combined with after_id");
  }
  const end = before === undefined ? models.length : indexOf(models, "before_id", before);
  const start = after === undefined ? 0 : indexOf(models, "after_id", after) + 1;
  const first = before === undefined ? start : Math.max(0, end - limit);
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

function invalid(param: string, problem: string): GatewayError {
  return new GatewayError("invalid_query", `Query parameter "${param}": ${problem}.`, { param });
}
