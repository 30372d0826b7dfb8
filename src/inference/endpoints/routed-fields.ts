import { Type } from "typebox";
import { providerPreferences } from "../call/routing/preferences.ts";
import { optional } from "../../http/route.ts";

const MAX_FALLBACK_MODELS = 16;

/** Members that every billed endpoint takes: how it is routed, and what is recorded with its charge. */
export const routedFields = {
  models: optional(
    Type.Array(Type.String({ minLength: 1 }), { minItems: 1, maxItems: MAX_FALLBACK_MODELS }),
  ),
  provider: optional(providerPreferences),
  route_explain: optional(Type.Boolean()),
  user: optional(Type.String({ maxLength: 512 })),
  session_id: optional(Type.String({ maxLength: 256 })),
  trace: optional(Type.Object({})),
  metadata: optional(Type.Object({})),
  guardrail: optional(Type.String()),
};

/** The members of a request that go to its provider as they are: all but those that an endpoint knows itself. */
export function fieldsFor(request: object, known: ReadonlySet<string>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(request).filter(
      ([name, value]) => value !== null && name !== "__proto__" && !known.has(name),
    ),
  );
}
