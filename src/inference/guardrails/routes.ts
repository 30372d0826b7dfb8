import { Type } from "typebox";
import { optional, type RouteDefinition } from "../../http/route.ts";
import { GatewayError } from "../../lib/errors.ts";
import type { DefinitionService } from "../definitions/definition-service.ts";
import { definitionRoutes } from "../definitions/routes.ts";
import { detectorOf, type GuardrailRule } from "./screening/guardrail.ts";
import { MAX_PATTERN_CHARACTERS, PatternError } from "./screening/patterns.ts";
import { ENTITIES } from "./screening/personal-data.ts";

const MAX_RULES = 32;

const rule = Type.Object(
  {
    type: Type.Enum(["pii", "pattern", "injection", "moderation"]),
    on: optional(
      Type.Array(Type.Enum(["input", "output"]), {
        minItems: 1,
        maxItems: 2,
        uniqueItems: true,
        description: "Default: both.",
      }),
    ),
    action: optional(Type.Enum(["block", "redact"], { description: "Default: block." })),
    pattern: optional(
      Type.String({
        minLength: 1,
        maxLength: MAX_PATTERN_CHARACTERS,
        description: "Only for type pattern: RE2 syntax, without backreferences and lookarounds.",
      }),
    ),
    entities: optional(
      Type.Array(Type.Enum([...ENTITIES]), {
        minItems: 1,
        maxItems: ENTITIES.length,
        uniqueItems: true,
        description: "Only for type pii: the kinds of data to detect. Default: all.",
      }),
    ),
  },
  { title: "GuardrailRule", additionalProperties: false },
);
const rules = Type.Array(rule, { minItems: 1, maxItems: MAX_RULES });

const guardrail = Type.Object(
  {
    id: Type.String(),
    name: Type.String(),
    rules,
    created_at: Type.String({ description: "ISO 8601." }),
    updated_at: Type.String({ description: "ISO 8601." }),
  },
  { title: "Guardrail" },
);

/** Returns the routes of guardrails: rules for requests to models and for their answers (contract §7). */
export function guardrailRoutes(
  guardrails: DefinitionService,
  { canModerate }: { readonly canModerate: boolean },
): RouteDefinition[] {
  return definitionRoutes(guardrails, {
    path: "/v1/guardrails",
    tag: "Guardrails",
    noun: "guardrail",
    scope: "guardrails:manage",
    members: { rules },
    shape: guardrail,
    bodyOf(stated, current) {
      const statedRules = (stated.rules ?? current?.rules) as readonly StatedRule[];
      return { rules: statedRules.map((statedRule, at) => ruleOf(statedRule, at, canModerate)) };
    },
    shapeOf: ({ body }) => body,
  });
}

type StatedRule = { readonly [Name in keyof GuardrailRule]?: GuardrailRule[Name] | null };

/** Returns the rule in its stored form. Throws 400 if its members do not fit its type, or if its pattern is invalid. */
function ruleOf(stated: StatedRule, at: number, canModerate: boolean): GuardrailRule {
  const { type, pattern, entities } = stated as GuardrailRule;
  const rulePath = `rules.${at}`;
  if ((type === "pattern") !== (typeof pattern === "string")) {
    const needs = type === "pattern" ? "is required" : `is no member of a rule of type ${type}`;
    throw invalid(`${rulePath}.pattern`, needs);
  }
  if (type !== "pii" && entities) {
    throw invalid(`${rulePath}.entities`, `is no member of a rule of type ${type}`);
  }
  const action = stated.action ?? "block";
  if (type === "moderation") {
    if (action === "redact") throw invalid(`${rulePath}.action`, "must be block for moderation");
    if (!canModerate) {
      throw invalid(`${rulePath}.type`, "no moderation model is configured");
    }
  }
  const created: GuardrailRule = {
    ...{ type, on: stated.on ?? ["input", "output"], action },
    ...(typeof pattern === "string" && { pattern }),
    ...(entities && { entities }),
  };
  try {
    detectorOf(created);
  } catch (error) {
    if (!(error instanceof PatternError)) throw error;
    throw invalid(`${rulePath}.pattern`, error.message);
  }
  return created;
}

function invalid(param: string, problem: string): GatewayError {
  return new GatewayError("invalid_body", `Request body field "${param}": ${problem}.`, { param });
}
