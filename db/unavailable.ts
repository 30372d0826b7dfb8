import { GatewayError } from "../src/lib/errors.ts";
import { isServerUnable } from "./client.ts";
import { isOutcomeUnknown } from "./ledger/outcome.ts";

/** What a caller is told of a failure that lies with the database; undefined for any other failure. */
export function asUnavailable(error: unknown): GatewayError | undefined {
  const message = messageOf(error);
  if (message === undefined) return undefined;
  return new GatewayError("database_unavailable", message, { cause: error, retryAfterSeconds: 1 });
}

function messageOf(error: unknown): string | undefined {
  if (isOutcomeUnknown(error)) return "The gateway's database cannot be reached at the moment.";
  if (isServerUnable(error)) return "The gateway's database cannot do this at the moment.";
  return undefined;
}
