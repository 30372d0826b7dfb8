import { Type } from "typebox";
import type { DefinitionRecord } from "../../../db/queries/definitions.ts";
import { nullable, optional, type RouteDefinition } from "../../http/route.ts";
import { GatewayError } from "../../lib/errors.ts";
import { assertRecordable } from "../call/endpoint.ts";
import type { Preset } from "../definitions/definition-cache.ts";
import type { DefinitionService } from "../definitions/definition-service.ts";
import { definitionRoutes } from "../definitions/routes.ts";
import type { ChatRequest } from "../endpoints/chat-completions/request.ts";
import { assertSupported, assertWellFormed } from "../endpoints/chat-completions/request-checks.ts";
import { chatCompletionBody } from "../endpoints/chat-completions/schema.ts";

const MAX_SYSTEM_CHARACTERS = 65_536;
const MAX_PARAMETERS_BYTES = 65_536;

/**
 * Fields that a preset cannot contain as parameters: fields of a single request, and fields that are members
 * of the preset.
 */
const NOT_PARAMETERS: ReadonlySet<string> = new Set(["model", "messages", "preset", "debug"]);

const parameters = Type.Object(
  Object.fromEntries(
    Object.entries(chatCompletionBody.properties).filter(([field]) => !NOT_PARAMETERS.has(field)),
  ),
  {
    title: "ChatParameters",
    additionalProperties: false,
    description: "Fields of chat completions; fields of the request take precedence.",
  },
);

const members = {
  model: optional(Type.String({ minLength: 1, maxLength: 256 })),
  system: optional(Type.String({ minLength: 1, maxLength: MAX_SYSTEM_CHARACTERS })),
  parameters: optional(parameters),
};

const presetShape = Type.Object(
  {
    id: Type.String(),
    name: Type.String(),
    model: nullable(Type.String()),
    system: nullable(Type.String()),
    parameters: Type.Object({}),
    created_at: Type.String({ description: "ISO 8601." }),
    updated_at: Type.String({ description: "ISO 8601." }),
  },
  { title: "Preset" },
);

type PresetBody = Partial<Record<keyof Preset, unknown>>;

/** Returns the routes of presets: saved fields that requests name (spec 4.5). */
export function presetRoutes(presets: DefinitionService): RouteDefinition[] {
  return definitionRoutes(presets, {
    path: "/v1/presets",
    tag: "Presets",
    noun: "preset",
    scope: "presets:manage",
    members,
    shape: presetShape,
    bodyOf: presetOf,
    shapeOf: ({ body }: DefinitionRecord) => body,
  });
}

/**
 * Returns the preset. A null or absent member of a new preset is unset. In a change, an absent member keeps
 * its value. Throws 400 if a chat request with these parameters would be rejected, or if they are too large.
 */
function presetOf(stated: PresetBody, current: Readonly<Record<string, unknown>> = {}) {
  const changed = { ...current, ...stated };
  const preset = {
    model: changed.model ?? null,
    system: changed.system ?? null,
    parameters: withoutNulls((changed.parameters ?? {}) as Readonly<Record<string, unknown>>),
  };
  assertParameters(preset.parameters);
  return preset;
}

/** Runs the checks that a request with these fields undergoes. */
function assertParameters(fields: Readonly<Record<string, unknown>>): void {
  if (Buffer.byteLength(JSON.stringify(fields)) > MAX_PARAMETERS_BYTES) {
    throw invalid("", `must not take more than ${MAX_PARAMETERS_BYTES} bytes of JSON`);
  }
  const { metadata } = fields as ChatRequest;
  if (metadata?.idempotency_key !== undefined) {
    throw invalid(
      ".metadata.idempotency_key",
      "would give all requests with this preset one idempotency key",
    );
  }
  const request: ChatRequest = { ...fields, messages: [{ role: "user", content: "" }] };
  try {
    // The other fields that these fields need can be in the request.
    assertWellFormed({ logprobs: true, ...request });
    assertRecordable(request);
    assertSupported(request);
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    const { code, message, param } = error;
    throw new GatewayError(code, message, { param: `parameters.${param}`, cause: error });
  }
}

function invalid(member: string, problem: string): GatewayError {
  const param = `parameters${member}`;
  return new GatewayError("invalid_body", `Request body field "${param}": ${problem}.`, { param });
}

function withoutNulls(fields: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null));
}
