import { Type } from "typebox";
import { optional, type RouteDefinition } from "../../../http/route.ts";
import { tokensOfBytes } from "../../../lib/token-estimate.ts";
import { estimatedUsage } from "../../../lib/usage.ts";
import type { ModerationCall, ModerationPart, Moderations } from "../../../providers/interface.ts";
import { providerRequest } from "../../call/call.ts";
import {
  type AcceptedRequest,
  assertRecordable,
  type CommonFields,
  type PaidEndpoint,
} from "../../call/endpoint.ts";
import type { PaidCallDependencies } from "../../call/run-call.ts";
import { InputTooLong, inputBound, inputUsage, renderInputUsage } from "../input-only.ts";
import { jsonRoute } from "../json-route.ts";
import { fieldsFor, routedFields } from "../routed-fields.ts";

/** OpenAI's default model, used if a request names none. */
const DEFAULT_MODEL = "omni-moderation-latest";
const MAX_INPUTS = 1_024;

const part = Type.Union(
  [
    Type.Object({ type: Type.Literal("text"), text: Type.String() }),
    Type.Object({
      type: Type.Literal("image_url"),
      image_url: Type.Object({ url: Type.String({ minLength: 1 }) }),
    }),
  ],
  { title: "ModerationPart" },
);

/** The body of POST /v1/moderations in OpenAI's form. Other fields are passed to the provider. */
const moderationsBody = Type.Object({
  model: optional(Type.String({ description: `Default: ${DEFAULT_MODEL}.` })),
  input: Type.Union(
    [
      Type.String(),
      Type.Array(Type.String(), { minItems: 1, maxItems: MAX_INPUTS }),
      Type.Array(part, { minItems: 1, maxItems: MAX_INPUTS }),
    ],
    {
      description:
        "A text, a list of texts that are classified separately, or the parts of one input.",
    },
  ),
  preset: optional(Type.String()),
  ...routedFields,
});

const verdicts = Type.Record(Type.String(), Type.Boolean());

const moderations = Type.Object(
  {
    id: Type.String(),
    model: Type.String(),
    results: Type.Array(
      Type.Object({
        flagged: Type.Boolean(),
        categories: verdicts,
        category_scores: Type.Record(Type.String(), Type.Number()),
        category_applied_input_types: Type.Optional(
          Type.Record(Type.String(), Type.Array(Type.String())),
        ),
      }),
    ),
    usage: inputUsage,
  },
  { title: "Moderation" },
);

interface ModerationsRequest extends CommonFields {
  readonly input: string | readonly string[] | readonly ModerationPart[];
}

interface AcceptedModerations extends AcceptedRequest {
  readonly fields: ModerationsRequest;
  readonly input: ModerationCall["input"];
  /** UTF-8 bytes of all texts. Every token has at least one byte. */
  readonly bytes: number;
  readonly images: number;
}

const tooLong = new InputTooLong("input", "The input is longer than the model accepts.");

/** Returns the route POST /v1/moderations. */
export function moderationsRoute(dependencies: PaidCallDependencies): RouteDefinition {
  return jsonRoute(dependencies, moderationsEndpoint, {
    path: "/v1/moderations",
    tag: "Moderations",
    operationId: "moderations.create",
    summary: "Create moderation",
    access: { kind: "model", scope: "chat:completions" },
    body: moderationsBody,
    responses: {
      200: { description: "A result for each text, or one for all parts.", schema: moderations },
      413: { description: tooLong.description },
    },
  });
}

const ENDPOINT_FIELDS: ReadonlySet<string> = new Set(Object.keys(moderationsBody.properties));

const moderationsEndpoint: PaidEndpoint<AcceptedModerations, Moderations> = {
  route: "POST /v1/moderations",
  categories: ["moderation"],
  capability: "moderate",
  title: "Moderation",

  accept(body) {
    const stated = body as ModerationsRequest;
    assertRecordable(stated);
    const isOpen = stated.model === undefined || stated.model === null;
    const fields = isOpen && !stated.models ? { ...stated, model: DEFAULT_MODEL } : stated;
    const input = typeof stated.input === "string" ? [stated.input] : stated.input;
    let bytes = 0;
    let images = 0;
    for (const entry of input) {
      const text = typeof entry === "string" ? entry : entry.text;
      if (text === undefined) images++;
      else bytes += Buffer.byteLength(text);
    }
    return { fields, input, bytes, images };
  },

  /** Counts each image as the full context length, because each provider counts image tokens in its own way. */
  bound: ({ bytes, images }, terms) => inputBound(bytes + images * terms.contextLength, terms),

  /** Returns 0. There are no output tokens, so the hold cannot be lowered. */
  statedLimit: () => 0,

  call(call, candidate, { request }) {
    const body = { input: request.input, fields: fieldsFor(request.fields, ENDPOINT_FIELDS) };
    return tooLong.answerOf(() => candidate.provider.moderate!(providerRequest(call, body)));
  },

  usage({ usage }, { bytes }) {
    return usage ?? estimatedUsage(tokensOfBytes(bytes), 0);
  },

  answer({ results }, _, facts) {
    return JSON.stringify({
      id: `modr-${facts.requestId}`,
      model: facts.candidate.model.id,
      results,
      usage: renderInputUsage(facts),
    });
  },
};
