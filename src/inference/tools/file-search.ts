import { Type } from "typebox";
import { optional } from "../../http/route.ts";
import { createCheck } from "../../http/validate.ts";
import { GatewayError } from "../../lib/errors.ts";
import { isFields, jsonValue } from "../../lib/json.ts";
import type { AttributeFilter, Attributes, StatedSearch } from "../../lib/vector-store.ts";
import {
  checkRequested,
  type RequestedTool,
  type RequestTools,
  type ToolContext,
  type ToolFactory,
  type ToolOpening,
} from "./registry.ts";
import type { GatewayTool, ToolOutcome, ToolRun } from "./tool.ts";

interface FileSearchOptions {
  readonly filter: AttributeFilter | undefined;
  readonly maxResults: number;
  readonly scoreThreshold: number;
  /** The weight of each ranking. */
  readonly weights: { readonly embedding: number; readonly text: number };
}

/** The caller of a search. */
export interface FileSearcher {
  readonly organizationId: string;
  readonly keyId: string;
  readonly signal: AbortSignal;
}

/** A passage found by a search. */
interface FoundPassage {
  readonly fileId: string;
  readonly filename: string;
  readonly attributes: Attributes;
  readonly text: string;
  readonly score: number;
}

/** The vector stores of organizations. */
export interface FileSearchStores {
  /** Parses a filter. Throws 400 if it is invalid. */
  readFilter(value: unknown): AttributeFilter;
  /** Rejects with 404 if a store does not exist in the organization, and with 400 if a store has expired. */
  assertSearchable(organizationId: string, storeIds: readonly string[]): Promise<void>;
  /** Searches the stores. Stores deleted in the meantime have no results. */
  searchAll(
    searcher: FileSearcher,
    storeIds: readonly string[],
    queries: readonly string[],
    options: FileSearchOptions,
  ): Promise<readonly FoundPassage[]>;
}

const MAX_STORES = 20;
const MAX_RESULTS = 50;
const DEFAULT_RESULTS = 10;
const MAX_QUERY_CHARACTERS = 4_096;
const RESULTS = "file_search_call.results";

const checkOptions = createCheck(
  Type.Object({
    type: Type.String(),
    vector_store_ids: Type.Array(Type.String({ minLength: 1, maxLength: 256 }), {
      minItems: 1,
      maxItems: MAX_STORES,
    }),
    max_num_results: optional(Type.Integer({ minimum: 1, maximum: MAX_RESULTS })),
    filters: optional(Type.Object({ type: Type.String() })),
    ranking_options: optional(
      Type.Object({
        ranker: optional(Type.String()),
        score_threshold: optional(Type.Number({ minimum: 0, maximum: 1 })),
        hybrid_search: optional(
          Type.Object({
            embedding_weight: Type.Number({ minimum: 0 }),
            text_weight: Type.Number({ minimum: 0 }),
          }),
        ),
      }),
    ),
  }),
  "invalid_body",
  "Request body",
);

/** The tool of a request after the check of its schema. */
interface Requested extends RequestedTool, StatedSearch {
  readonly vector_store_ids: readonly string[];
}

/** The tool `file_search`, which finds passages in the organization's vector stores (OpenAI's file search tool). */
export class FileSearchTools implements ToolFactory {
  readonly types = ["file_search"];
  readonly #stores: FileSearchStores;

  constructor(stores: FileSearchStores) {
    this.#stores = stores;
  }

  create(requested: RequestedTool, context: ToolContext): RequestTools {
    checkRequested(checkOptions, requested, context);
    const {
      vector_store_ids: statedIds,
      max_num_results,
      filters,
      ranking_options,
    } = requested as Requested;
    const storeIds = [...new Set(statedIds)];
    const options: FileSearchOptions = {
      filter:
        filters === undefined || filters === null ? undefined : this.#stores.readFilter(filters),
      maxResults: max_num_results ?? DEFAULT_RESULTS,
      scoreThreshold: ranking_options?.score_threshold ?? 0,
      weights: weightsOf(ranking_options?.hybrid_search, context),
    };
    const showsResults = context.include.has(RESULTS);
    return {
      tools: [new FileSearch(this.#stores, storeIds, options, showsResults)],
      open: async ({ organizationId }: ToolOpening) => {
        await this.#stores.assertSearchable(organizationId, storeIds);
        return undefined;
      },
    };
  }
}

class FileSearch implements GatewayTool {
  readonly name = "file_search";
  readonly description =
    "Searches the files that were provided for passages that answer a question. Name the file by its file name, as given, if the answer uses a passage of it.";
  readonly parameters = {
    type: "object",
    properties: {
      query: { type: "string", description: "The search text, in words that the files use." },
    },
    required: ["query"],
    additionalProperties: false,
  };
  readonly quantitiesBound = { fileSearches: 1 };
  readonly #stores: FileSearchStores;
  readonly #storeIds: readonly string[];
  readonly #options: FileSearchOptions;
  readonly #showsResults: boolean;

  constructor(
    stores: FileSearchStores,
    storeIds: readonly string[],
    options: FileSearchOptions,
    showsResults: boolean,
  ) {
    this.#stores = stores;
    this.#storeIds = storeIds;
    this.#options = options;
    this.#showsResults = showsResults;
  }

  opening(json: string) {
    const query = queryOf(json);
    return { queries: query === undefined ? [] : [query], results: null };
  }

  async run(call: ToolRun): Promise<ToolOutcome> {
    const { arguments: json, progress } = call;
    const query = queryOf(json);
    if (query === undefined) return this.#outcome(json, [], BAD_QUERY, true);
    progress("searching");
    const passages = await this.#stores.searchAll(call, this.#storeIds, [query], this.#options);
    const outcome = this.#outcome(json, passages, outputOf(passages), false);
    const files = new Map(passages.map(({ fileId, filename }) => [fileId, filename]));
    return {
      ...outcome,
      quantities: { fileSearches: 1 },
      sources: [...files].map(([fileId, filename]) => ({ kind: "file", fileId, filename })),
    };
  }

  #outcome(
    json: string,
    passages: readonly FoundPassage[],
    output: string,
    isFailed: boolean,
  ): ToolOutcome {
    const results = this.#showsResults ? passages.map(resultOf) : null;
    const item = { type: "file_search_call", ...this.opening(json), results };
    return { output, item, isFailed };
  }
}

/** Returns the weights. Throws 400 if both are 0. */
function weightsOf(
  stated: NonNullable<Requested["ranking_options"]>["hybrid_search"],
  { param: path }: ToolContext,
): FileSearchOptions["weights"] {
  const { embedding_weight: embedding = 1, text_weight: text = 1 } = stated ?? {};
  if (embedding + text > 0) return { embedding, text };
  const param = `${path}.ranking_options.hybrid_search`;
  const message = `Request body field "${param}": one of the weights must be above 0.`;
  throw new GatewayError("invalid_body", message, { param });
}

const BAD_QUERY =
  'The arguments must be JSON of the form {"query": "…"}, with a query that is not empty.';

/** Returns the query, or undefined if the model wrote none. */
function queryOf(json: string): string | undefined {
  const value = jsonValue(json);
  if (!isFields(value) || typeof value.query !== "string") return undefined;
  // Postgres accepts neither the character 0 nor lone surrogates.
  const query = value.query.replaceAll("\0", " ").toWellFormed().trim();
  return query === "" ? undefined : query.slice(0, MAX_QUERY_CHARACTERS);
}

function resultOf({ fileId, filename, attributes, text, score }: FoundPassage) {
  return { file_id: fileId, filename, attributes, text, score };
}

function outputOf(passages: readonly FoundPassage[]): string {
  if (passages.length === 0) return "No passage was found.";
  return JSON.stringify(passages.map(({ filename, text }) => ({ file: filename, text })));
}
