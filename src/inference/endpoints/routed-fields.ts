import { Type } from "typebox";
import { optional } from "../../http/route.ts";
import { fallbackModels, providerPreferences } from "../call/routing/preferences.ts";

/** Members that every billed endpoint accepts: routing fields and fields recorded with the charge. */
export const routedFields = {
  models: optional(fallbackModels),
  provider: optional(providerPreferences),
  route_explain: optional(Type.Boolean()),
  user: optional(Type.String({ maxLength: 512 })),
  session_id: optional(Type.String({ maxLength: 256 })),
  trace: optional(Type.Object({})),
  metadata: optional(Type.Object({})),
  guardrail: optional(Type.String()),
};

/**
 * Returns the members of a request that are passed to the provider unchanged: all except those that the
 * endpoint handles itself.
 */
export function fieldsFor(request: object, handled: ReadonlySet<string>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(request).filter(
      ([name, value]) => value !== null && name !== "__proto__" && !handled.has(name),
    ),
  );
}
