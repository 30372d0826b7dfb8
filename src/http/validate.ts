import type { TSchema } from "typebox";
import { Compile } from "typebox/compile";
import { type ErrorCode, GatewayError } from "../lib/errors.ts";

/** Checks a value against a schema and throws 400 with the field at fault. Coerces and strips nothing. */
export type Check = (value: unknown) => void;

const MAX_SHOWN_CHARACTERS = 300;

export function compileCheck(schema: TSchema, code: ErrorCode, subject: string): Check {
  const validator = Compile(schema);
  return (value) => {
    if (validator.Check(value)) return;
    const [first] = validator.Errors(value);
    const path = first?.instancePath ?? "";
    const param = path === "" ? missingField(first) : path.slice(1).replaceAll("/", ".");
    const message = first?.message ?? "is not valid";
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

function missingField(error: { keyword?: string; params?: unknown } | undefined): string | null {
  const required = (error?.params as { requiredProperties?: string[] } | undefined)
    ?.requiredProperties;
  return required?.[0] ?? null;
}
