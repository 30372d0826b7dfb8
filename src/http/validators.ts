import type { TSchema } from "typebox";
import { Compile } from "typebox/schema";

export type Validator = ReturnType<typeof Compile>;

/** Schemas are made once, at the start, so this is bounded by their parts. */
const VALIDATORS = new WeakMap<TSchema, Validator>();

/** A schema's validator, compiled at its first use: an idle gateway would hold dozens for nothing. */
export function validatorOf(schema: TSchema): Validator {
  let validator = VALIDATORS.get(schema);
  if (validator === undefined) {
    validator = Compile(schema);
    VALIDATORS.set(schema, validator);
  }
  return validator;
}
