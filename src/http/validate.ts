import type { TSchema } from "typebox";
import { type ErrorCode, GatewayError } from "../lib/errors.ts";
import { findValidationError } from "./find-validation-error.ts";
import { type Validator, validatorOf } from "./validators.ts";

/** Checks a value against a schema and throws 400 with the field at fault. Coerces and strips nothing. */
export type Check = (value: unknown) => void;

const MAX_SHOWN_CHARACTERS = 300;

export function createCheck(schema: TSchema, code: ErrorCode, subject: string): Check {
  let validator: Validator | undefined;
  return (value) => {
    validator ??= validatorOf(schema);
    if (validator.Check(value)) return;
    const { path, message } = findValidationError(schema, value);
    const param = path.length === 0 ? null : path.join(".").slice(0, MAX_SHOWN_CHARACTERS);
    throw new GatewayError(
      code,
      `${subject}${param === null ? "" : ` field "${param}"`}: ${message}`.slice(
        0,
        MAX_SHOWN_CHARACTERS,
      ),
      { param },
    );
  };
}
