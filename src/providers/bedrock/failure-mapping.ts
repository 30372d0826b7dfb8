import { isFields, jsonValue } from "../../lib/json.ts";
import { retryAfterMs } from "../../lib/retry-after.ts";
import type { ProviderFailure, ProviderFailureKind } from "../interface.ts";
import { type FailureContext, kindOfStatus, statusFailure } from "../transport/status-failure.ts";
import type { EventMessage } from "./event-stream-decoder.ts";

interface Headers {
  get(name: string): string | null;
}

/**
 * Statuses by the names of errors, in lower case: for those inside a stream, which have none of their own, and for
 * those whose status says something else than they do. Faults of the key itself, which AWS answers with 400 or
 * 403 as it does a model that the account may not call, count as 401: the key serves no call.
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
/** Said of API keys with 403 and the name of every refusal. */
const KEY_REFUSED = /authentication failed|api key (?:is not valid|.{0,20}expired)|security token/i;
const TOO_LONG =
  /input is too long|prompt is too long|too many (?:input )?tokens|exceeds? (?:the )?(?:maximum|model'?s?).{0,40}(?:context|tokens|length)|maximum context length/i;
/** Said with 400 of what the configuration names, not of the request. */
const OF_CONFIGURATION =
  /on-demand throughput|model identifier is invalid|inference profile|doesn't support (?:the )?(?:model|on-demand)|end of its life/i;
/** Said with 400, of the prompt. */
const FILTERED = /content filter|blocked by (?:our|the) (?:content|safety)/i;

/** The failure that a response with an error status stands for. */
export function failureOfStatus(
  status: number,
  headers: Headers,
  text: string,
  context: FailureContext,
): ProviderFailure {
  const { name, message } = parseErrorBody(text);
  // The header may go on with the address of a description.
  const inHeader = headers.get("x-amzn-errortype")?.split(":", 1)[0];
  const waitMs = retryAfterMs(headers, context.nowMs);
  return failureOf(status, inHeader ?? name, message, waitMs, context);
}

/** The failure that an exception inside a stream stands for; undefined where the message is an event. */
export function failureOfMessage(
  { headers, payload }: EventMessage,
  context: FailureContext,
): ProviderFailure | undefined {
  const type = headers.get(":message-type");
  if (type !== "exception" && type !== "error") return undefined;
  const told = parseErrorBody(new TextDecoder().decode(payload));
  const name = headers.get(":exception-type") ?? headers.get(":error-code") ?? told.name;
  const message = told.message ?? headers.get(":error-message");
  return failureOf(500, name, message, undefined, context);
}

function failureOf(
  stated: number,
  name: string | undefined,
  message: string | undefined,
  waitMs: number | undefined,
  context: FailureContext,
): ProviderFailure {
  const isOfKey = stated === 403 && KEY_REFUSED.test(message ?? "");
  const status = isOfKey ? 401 : (STATUSES.get(name?.toLowerCase() ?? "") ?? stated);
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
  // The model's own error, which AWS counts as the caller's.
  if (status === 424) return "unavailable";
  if (status === 400 && OF_CONFIGURATION.test(message)) return "misconfigured";
  if (status === 400 && FILTERED.test(message)) return "content_policy";
  return kindOfStatus(status);
}

interface Complaint {
  readonly name: string | undefined;
  readonly message: string | undefined;
}

/** `{"message": …}`, with the name of the error as `__type` where no header has it. */
function parseErrorBody(text: string): Complaint {
  const body = jsonValue(text);
  if (!isFields(body)) return { name: undefined, message: undefined };
  const message = body.message ?? body.Message;
  const name = body.__type ?? body.code;
  return {
    // It may have the name of its service before it.
    name: typeof name === "string" ? name.slice(name.lastIndexOf("#") + 1) : undefined,
    message: typeof message === "string" ? message : undefined,
  };
}
