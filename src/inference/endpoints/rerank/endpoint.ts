import { Type } from "typebox";
import { optional, type RouteDefinition } from "../../../http/route.ts";
import type { Ranking } from "../../../providers/interface.ts";
import { providerRequest } from "../../call/call.ts";
import {
  type AcceptedRequest,
  assertRecordable,
  type CommonFields,
  type PaidEndpoint,
} from "../../call/endpoint.ts";
import type { PaidCallDependencies } from "../../call/run-call.ts";
import { InputTooLong } from "../input-only.ts";
import { jsonRoute } from "../json-route.ts";
import { fieldsFor, routedFields } from "../routed-fields.ts";
import { bySearchUnit, type RankingSize, rankingBound, rankingUsage } from "./cost.ts";

/** More documents than the offered models accept per request. */
const MAX_DOCUMENTS = 10_000;

const document = Type.Union([Type.String(), Type.Object({ text: Type.String() })]);

/** The body of POST /v1/rerank in Cohere's and Jina's format. Other fields are passed to the provider. */
const rerankBody = Type.Object({
  model: optional(Type.String()),
  query: Type.String({ minLength: 1 }),
  documents: Type.Array(document, { minItems: 1, maxItems: MAX_DOCUMENTS }),
  top_n: optional(
    Type.Integer({ minimum: 1, description: "Number of results to return. All if absent." }),
  ),
  return_documents: optional(Type.Boolean({ description: "Returns each document in its result." })),
  preset: optional(Type.String()),
  ...routedFields,
});

const ranking = Type.Object(
  {
    id: Type.String(),
    model: Type.String(),
    results: Type.Array(
      Type.Object({
        index: Type.Integer({ description: "Index of the document, from 0." }),
        relevance_score: Type.Number({ description: "A higher score is more relevant." }),
        document: Type.Optional(Type.Object({ text: Type.String() })),
      }),
      { description: "Most relevant document first." },
    ),
    usage: Type.Object({
      prompt_tokens: Type.Integer(),
      total_tokens: Type.Integer(),
      search_units: Type.Optional(Type.Integer()),
      cost: Type.Number(),
    }),
    meta: Type.Object({
      api_version: Type.Object({ version: Type.String() }),
      billed_units: Type.Object({
        search_units: Type.Optional(Type.Integer()),
        input_tokens: Type.Optional(Type.Integer()),
      }),
    }),
  },
  { title: "Ranking" },
);

type Document = string | { readonly text: string };

interface RerankRequest extends CommonFields {
  readonly query: string;
  readonly documents: readonly Document[];
  readonly top_n?: number | null;
  readonly return_documents?: boolean | null;
}

interface AcceptedRerank extends AcceptedRequest {
  readonly fields: RerankRequest;
  readonly texts: readonly string[];
  readonly size: RankingSize;
}

const tooLong = new InputTooLong(
  "documents",
  "The query or a document is longer than the model accepts.",
);

/** Returns the route POST /v1/rerank. */
export function rerankRoute(dependencies: PaidCallDependencies): RouteDefinition {
  return jsonRoute(dependencies, rerankEndpoint, {
    path: "/v1/rerank",
    tag: "Rerank",
    operationId: "rerank.create",
    summary: "Rerank documents",
    access: { kind: "model", scope: "embeddings" },
    body: rerankBody,
    responses: {
      200: { description: "The ranking.", schema: ranking },
      413: { description: tooLong.description },
    },
  });
}

const ENDPOINT_FIELDS: ReadonlySet<string> = new Set(Object.keys(rerankBody.properties));

const rerankEndpoint: PaidEndpoint<AcceptedRerank, Ranking> = {
  route: "POST /v1/rerank",
  categories: ["rerank"],
  capability: "rerank",
  title: "Rerank",

  accept(body) {
    const fields = body as RerankRequest;
    assertRecordable(fields);
    const texts = fields.documents.map((entry) => (typeof entry === "string" ? entry : entry.text));
    const size = {
      queryBytes: Buffer.byteLength(fields.query),
      documentBytes: texts.map((text) => Buffer.byteLength(text)),
    };
    return { fields, texts, size };
  },

  bound: ({ size }, terms) => rankingBound(size, terms),

  /** Returns 0. There are no output tokens, so the hold cannot be lowered. */
  statedLimit: () => 0,

  call(call, candidate, { request: { fields, texts } }) {
    const { query } = fields;
    const body = { query, documents: texts, fields: fieldsFor(fields, ENDPOINT_FIELDS) };
    return tooLong.answerOf(() => candidate.provider.rerank!(providerRequest(call, body)));
  },

  usage: (answer, { size }, terms) => rankingUsage(answer, size, terms),

  answer({ scores }, { fields }, { requestId, candidate, usage, costUsd }) {
    const { documents, top_n: shown, return_documents: returns } = fields;
    const results = scores
      .map((score, index) => ({ index, relevance_score: score }))
      .sort(
        (left, right) => right.relevance_score - left.relevance_score || left.index - right.index,
      )
      .slice(0, shown ?? scores.length)
      .map((result) =>
        returns ? { ...result, document: shownDocument(documents[result.index]!) } : result,
      );
    const { promptTokens, searchUnits = 0 } = usage;
    const isBySearch = bySearchUnit(candidate.terms);
    return JSON.stringify({
      id: `rerank-${requestId}`,
      model: candidate.model.id,
      results,
      usage: {
        prompt_tokens: promptTokens,
        total_tokens: promptTokens,
        ...(isBySearch && { search_units: searchUnits }),
        cost: costUsd,
      },
      meta: {
        api_version: { version: "2" },
        billed_units: isBySearch ? { search_units: searchUnits } : { input_tokens: promptTokens },
      },
    });
  },
};

function shownDocument(document: Document): { readonly text: string } {
  return typeof document === "string" ? { text: document } : document;
}
