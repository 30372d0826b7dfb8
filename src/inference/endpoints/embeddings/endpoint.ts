import { Type } from "typebox";
import { optional, type RouteDefinition } from "../../../http/route.ts";
import type { ModelTerms } from "../../../lib/catalogue-model.ts";
import { tokensOfBytes } from "../../../lib/token-estimate.ts";
import { estimatedUsage, type Usage } from "../../../lib/usage.ts";
import type { Embeddings } from "../../../providers/interface.ts";
import { type ProviderCall, providerRequest } from "../../call/call.ts";
import {
  type AcceptedRequest,
  type AnswerFacts,
  assertRecordable,
  type CacheFormat,
  type CommonFields,
  type PaidEndpoint,
} from "../../call/endpoint.ts";
import type { Candidate } from "../../call/routing/plan-route.ts";
import type { PaidCallDependencies } from "../../call/run-call.ts";
import { InputTooLong, inputBound, inputUsage, renderInputUsage } from "../input-only.ts";
import { jsonRoute } from "../json-route.ts";
import { fieldsFor, routedFields } from "../routed-fields.ts";
import { withoutTokens } from "./token-texts.ts";

const MAX_INPUTS = 2_048;
const MAX_DIMENSIONS = 65_536;
const MAX_TOKEN_ID = 4_294_967_295;

const text = Type.String({ minLength: 1 });
const tokens = Type.Array(Type.Integer({ minimum: 0, maximum: MAX_TOKEN_ID }), { minItems: 1 });

/** The body of POST /v1/embeddings (spec 4.7). Other fields are passed to the provider. */
export const embeddingsBody = Type.Object({
  model: optional(Type.String()),
  input: Type.Union([
    text,
    Type.Array(text, { minItems: 1, maxItems: MAX_INPUTS }),
    tokens,
    Type.Array(tokens, { minItems: 1, maxItems: MAX_INPUTS }),
  ]),
  encoding_format: optional(Type.Enum(["float", "base64"])),
  dimensions: optional(Type.Integer({ minimum: 1, maximum: MAX_DIMENSIONS })),
  preset: optional(Type.String()),
  ...routedFields,
});

/** A list of embeddings (spec 2.6). */
export const embeddingList = Type.Object(
  {
    object: Type.Literal("list"),
    data: Type.Array(
      Type.Object({
        object: Type.Literal("embedding"),
        index: Type.Integer(),
        embedding: Type.Union([
          Type.Array(Type.Number()),
          Type.String({ description: "Little-endian float32 in base64." }),
        ]),
      }),
    ),
    model: Type.String(),
    usage: inputUsage,
  },
  { title: "EmbeddingList" },
);

type Input = string | readonly number[];

interface EmbeddingsRequest extends CommonFields {
  readonly input: Input | readonly Input[];
  readonly encoding_format?: "float" | "base64" | null;
  readonly dimensions?: number | null;
}

interface AcceptedEmbeddings extends AcceptedRequest {
  readonly fields: EmbeddingsRequest;
  readonly inputs: readonly Input[];
  /** The most tokens that each input can have. Every token has at least one byte. */
  readonly sizes: readonly number[];
}

const tooLong = new InputTooLong("input", "An input is longer than the model accepts.");

/** Returns the route POST /v1/embeddings (spec 4.7). */
export function embeddingsRoute(dependencies: PaidCallDependencies): RouteDefinition {
  return jsonRoute(dependencies, embeddingsEndpoint, {
    path: "/v1/embeddings",
    tag: "Embeddings",
    operationId: "embeddings.create",
    summary: "Create embeddings",
    access: { kind: "model", scope: "embeddings" },
    body: embeddingsBody,
    responses: {
      200: { description: "An embedding for each input.", schema: embeddingList },
      413: { description: tooLong.description },
    },
  });
}

/** Fields that do not change the vectors. */
const NEUTRAL_FIELDS = new Set([
  "model",
  "models",
  "user",
  "metadata",
  "trace",
  "session_id",
  "route_explain",
]);
/** The end of an answer, with its cost. */
const COST = /"cost":[^,{}]*}}$/;

/** Embeddings in the response cache. They are stored as they were sent, and a hit replaces only the cost. */
const embeddingsCacheFormat: CacheFormat<AcceptedEmbeddings> = {
  identity: ({ fields }) =>
    Object.fromEntries(Object.entries(fields).filter(([name]) => !NEUTRAL_FIELDS.has(name))),
  ofWhole: (body) => (typeof body === "string" ? body : new TextDecoder().decode(body)),
  whole: (cached) => cached.replace(COST, '"cost":0}}'),
};

export const embeddingsEndpoint: PaidEndpoint<AcceptedEmbeddings, Embeddings> = {
  route: "POST /v1/embeddings",
  categories: ["embedding"],
  capability: "embed",
  title: "Embeddings",
  cacheFormat: embeddingsCacheFormat,

  canBeBatched: () => true,
  readable: withoutTokens,

  accept(body) {
    const fields = body as EmbeddingsRequest;
    assertRecordable(fields);
    const inputs = inputsOf(fields.input);
    return { fields, inputs, sizes: inputs.map(sizeOf) };
  },

  plan({ inputs }, plan) {
    const candidates = plan.candidates.filter(({ terms }) =>
      inputs.every((input) => mayFit(input, terms.contextLength)),
    );
    if (candidates.length === 0 && plan.candidates.length > 0) throw tooLong.error();
    return candidates.length === plan.candidates.length ? plan : { ...plan, candidates };
  },

  bound: ({ sizes }, terms) => inputBound(tokensWithin(sizes, terms), terms),

  /** Returns 0. There are no output tokens, so the hold cannot be lowered. */
  statedLimit: () => 0,

  call(call: ProviderCall, candidate: Candidate, { request }) {
    const { dimensions } = request.fields;
    const body = {
      inputs: request.inputs,
      dimensions: dimensions ?? undefined,
      fields: fieldsFor(request.fields, ENDPOINT_FIELDS),
    };
    return tooLong.answerOf(() => candidate.provider.embed!(providerRequest(call, body)));
  },

  usage({ usage }, { sizes }, terms): Usage {
    if (usage !== undefined) return usage;
    return estimatedUsage(tokensWithin(sizes.map(tokensOfBytes), terms), 0);
  },

  answer({ vectors }, { fields }, facts: AnswerFacts): string {
    const isBase64 = fields.encoding_format === "base64";
    return JSON.stringify({
      object: "list",
      data: vectors.map((vector, index) => ({
        object: "embedding",
        index,
        embedding: isBase64 ? base64Of(vector) : Array.from(vector),
      })),
      model: facts.candidate.model.id,
      usage: renderInputUsage(facts),
    });
  },
};

function inputsOf(input: EmbeddingsRequest["input"]): readonly Input[] {
  if (typeof input === "string") return [input];
  return typeof input[0] === "number" ? [input as readonly number[]] : (input as readonly Input[]);
}

function sizeOf(input: Input): number {
  return typeof input === "string" ? Buffer.byteLength(input) : input.length;
}

/** OpenAI accepts one token more than the stated limit of its models. */
const MOST_EXCESS_TOKENS = 1;

/**
 * Returns the total tokens. Each input counts at most the tokens that the model accepts, because providers
 * reject longer inputs.
 */
function tokensWithin(sizes: readonly number[], { contextLength }: ModelTerms): number {
  const most = contextLength + MOST_EXCESS_TOKENS;
  return sizes.reduce((sum, size) => sum + Math.min(size, most), 0);
}

/**
 * Returns false if an input certainly has more tokens than the model accepts. It counts listed tokens, or
 * words of a text, which have at least one token each. The provider counts exactly.
 */
function mayFit(input: Input, maxTokens: number): boolean {
  if (typeof input !== "string") return input.length <= maxTokens;
  if (input.length < 2 * maxTokens) return true;
  let words = 0;
  for (const _ of input.matchAll(/\S+/g)) {
    if (++words > maxTokens) return false;
  }
  return true;
}

/** Fields that only the gateway uses, or sends in the provider's form. */
const ENDPOINT_FIELDS: ReadonlySet<string> = new Set(
  Object.keys(embeddingsBody.properties).filter((name) => name !== "user"),
);

function base64Of(vector: ArrayLike<number>): string {
  const bytes = Buffer.alloc(vector.length * Float32Array.BYTES_PER_ELEMENT);
  for (let at = 0; at < vector.length; at++) bytes.writeFloatLE(vector[at]!, at * 4);
  return bytes.toString("base64");
}
