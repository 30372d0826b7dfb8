import { isFields, jsonValue } from "../../lib/json.ts";
import { retryAfterMs } from "../../lib/retry-after.ts";
import type { ProviderFailure, ProviderFailureKind } from "../interface.ts";
import type { ResponseHeaders } from "../transport/provider-response.ts";
import { type FailureContext, kindOfStatus, statusFailure } from "../transport/status-failure.ts";
import type { EventMessage } from "./event-stream-decoder.ts";

/**
 * Statuses by error name in lower case, for errors inside a stream, which have no status, and for errors with
 * a misleading status. Key faults count as 401 because the key serves no call. AWS answers them with 400 or
 * 403, like a model that the account has no access to.
 * https://docs.aws.amazon.com/bedrock/latest/APIReference/CommonErrors.html
 */
const STATUSES: ReadonlyMap<string, number> = new Map([
  ["validationexception", 400],
  ["accessdeniedexception", 403],
  ["resourcenotfoundexception", 404],
  ["modeltimeoutexception", 408],
  ["throttlingexception", 429],
  ["modelnotreadyexception", 429],
  ["servicequotaexceededexception", 429],
  ["modelerrorexception", 500],
  ["modelstreamerrorexception", 500],
  ["internalserverexception", 500],
  ["internalfailure", 500],
  ["serviceunavailableexception", 503],
  ["unrecognizedclientexception", 401],
  ["invalidsignatureexception", 401],
  ["signaturedoesnotmatch", 401],
  ["invalidclienttokenid", 401],
  ["incompletesignatureexception", 401],
  ["incompletesignature", 401],
  ["missingauthenticationtokenexception", 401],
  ["missingauthenticationtoken", 401],
  ["expiredtokenexception", 401],
  ["expiredtoken", 401],
]);
/** Messages about invalid API keys, with status 403 and the error name of any rejection. */
const KEY_REJECTED =
  /authentication failed|api key (?:is not valid|.{0,20}expired)|security token/i;
const TOO_LONG =
  /input is too long|prompt is too long|too many (?:input )?tokens|exceeds? (?:the )?(?:maximum|model'?s?).{0,40}(?:context|tokens|length)|maximum context length/i;
/** Messages about configured models, with status 400. The request is not at fault. */
const CONFIGURATION_FAULT =
  /on-demand throughput|model identifier is invalid|inference profile|doesn't support (?:the )?(?:model|on-demand)|end of its life/i;
/** Messages about the prompt, with status 400. */
const FILTERED = /content filter|blocked by (?:our|the) (?:content|safety)/i;

/** Returns the failure for a response with an error status. */
export function failureOfStatus(
  status: number,
  headers: ResponseHeaders,
  text: string,
  context: FailureContext,
): ProviderFailure {
  const { name, message } = parseErrorBody(text);
  // The URL of a description can follow the name in the header.
  const inHeader = headers.get("x-amzn-errortype")?.split(":", 1)[0];
  const waitMs = retryAfterMs(headers, context.nowMs);
  return failureOf(status, inHeader ?? name, message, waitMs, context);
}

/** Returns the failure for an exception inside a stream. Returns undefined if the message is an event. */
export function failureOfMessage(
  { headers, payload }: EventMessage,
  context: FailureContext,
): ProviderFailure | undefined {
  const type = headers.get(":message-type");
  if (type !== "exception" && type !== "error") return undefined;
  const details = parseErrorBody(new TextDecoder().decode(payload));
  const name = headers.get(":exception-type") ?? headers.get(":error-code") ?? details.name;
  const message = details.message ?? headers.get(":error-message");
  return failureOf(500, name, message, undefined, context);
}

function failureOf(
  stated: number,
  name: string | undefined,
  message: string | undefined,
  waitMs: number | undefined,
  context: FailureContext,
): ProviderFailure {
  const isKeyFault = stated === 403 && KEY_REJECTED.test(message ?? "");
  const status = isKeyFault ? 401 : (STATUSES.get(name?.toLowerCase() ?? "") ?? stated);
  const kind = kindOf(status, message ?? "");
  return statusFailure(
    status,
    {
      kind,
      message: message || undefined,
      retryAfterMs: waitMs,
      isTooLong: kind === "rejected" && (status === 413 || TOO_LONG.test(message ?? "")),
    },
    context,
  );
}

function kindOf(status: number, message: string): ProviderFailureKind {
  // An error of the model, which AWS counts as a client error.
  if (status === 424) return "unavailable";
  if (status === 400 && CONFIGURATION_FAULT.test(message)) return "misconfigured";
  if (status === 400 && FILTERED.test(message)) return "content_policy";
  return kindOfStatus(status);
}

interface ErrorDetails {
  readonly name: string | undefined;
  readonly message: string | undefined;
}

/** Parses `{"message": …}`. The error name is in `__type` if no header has it. */
function parseErrorBody(text: string): ErrorDetails {
  const body = jsonValue(text);
  if (!isFields(body)) return { name: undefined, message: undefined };
  const message = body.message ?? body.Message;
  const name = body.__type ?? body.code;
  return {
    // The name of the service can precede the error name.
    name: typeof name === "string" ? name.slice(name.lastIndexOf("#") + 1) : undefined,
    message: typeof message === "string" ? message : undefined,
  };
}
