import { Type } from "typebox";
import { defineEvent } from "./definition.ts";

/** The fields of all API key events. */
export const KEY_FIELDS = { key_id: Type.String(), key_name: Type.String() };
export const SAMPLE_KEY = { key_id: "key_test", key_name: "Test key" };

export const keyCreated = defineEvent({
  type: "key.created",
  summary: "An API key was created.",
  payload: Type.Object(
    { ...KEY_FIELDS, key_prefix: Type.String() },
    { additionalProperties: false },
  ),
  sample: { ...SAMPLE_KEY, key_prefix: "gateway_sk_Ab3d…" },
});
