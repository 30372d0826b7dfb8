import type { TSchema } from "typebox";
import { Compile } from "typebox/compile";
import { type ErrorCode, GatewayError } from "../lib/errors.ts";
import { firstFault } from "./first-fault.ts";

/** Checks a value against a schema and throws 400 with the field at fault. Coerces and strips nothing. */
export type Check = (value: unknown) => void;

const MAX_SHOWN_CHARACTERS = 300;

export function compileCheck(schema: TSchema, code: ErrorCode, subject: string): Check {
  const validator = Compile(schema);
  return (value) => {
    if (validator.Check(value)) return;
    const { path, message } = firstFault(schema, value);
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
