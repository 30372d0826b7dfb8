/**
 * Removes secrets from log texts: API keys of this gateway and of providers, bearer tokens, credentials in
 * URLs, query values that are named like secrets, and the parameters in the message of a failed query.
 */
const HIDDEN = "[redacted]";
const MAX_TEXT_CHARACTERS = 2000;
const MAX_SCANNED_CHARACTERS = 16_384;
const MAX_LINE_CHARACTERS = 32_768;
const MAX_DEPTH = 8;

/** Bounded repetitions keep the time linear in the length of hostile text. */
const PATTERNS: readonly (readonly [RegExp, string])[] = [
  [/\nparams: [\s\S]*$/, `\nparams: ${HIDDEN}`],
  // Lists of keys show the first four characters; five and more are secret.
  [/(gateway_(?:sk|mgmt|op)_)[0-9A-Za-z]{5,256}/g, `$1${HIDDEN}`],
  [/\b(sk-|gsk_|xai-|whsec_|[sr]k_(?:live|test)_)[\w*-]{6,256}/g, `$1${HIDDEN}`],
  [/\b(AIza|AKIA|ASIA)[\w-]{12,256}/g, `$1${HIDDEN}`],
  [/\b(Bearer|Basic)\s{1,8}[\w.~+/=*-]{8,4096}/gi, `$1 ${HIDDEN}`],
  // A colon with digits and a slash is a port; otherwise the text up to the last @ is a password.
  [/(:\/\/)[^\s/:@?#]{0,256}:(?!\d{1,5}(?:[/?#\s]|$))[^\s]{0,512}@/g, `$1${HIDDEN}@`],
  [/(:\/\/)[^\s/?#@]{1,512}@/g, `$1${HIDDEN}@`],
  [
    /\b((?:[\w-]{0,32}[_-])?(?:key|token|secret|password|passwd|pwd|signature)=)[^\s&"',;]{1,4096}/gi,
    `$1${HIDDEN}`,
  ],
];

const SECRET_NAMES =
  /^(?:authorization|proxy-authorization|cookie|set-cookie|x-api-key|x-goog-api-key|api[-_]?key|(?:.{1,32}_)?(?:password|secret|token)|(?:gateway_|previous_?)?master_?key(?:_previous)?|secret_?key|management_?key|operator_?key)$/i;

/** Matches every line that could hold a secret, and some that do not. */
const SUSPECT =
  /gateway_(?:sk|mgmt|op)_|sk-|gsk_|xai-|whsec_|[sr]k_(?:live|test)_|AIza|AKIA|ASIA|bearer|basic|:\/\/|key|token|secret|password|passwd|pwd|signature|authorization|cookie|\\nparams: /i;

/** Line separators that JSON does not escape but terminals and log readers obey. */
const LINE_SEPARATORS = /[\u0085\u2028\u2029]/g;

/** Returns the text without secrets, cut to 2,000 characters. */
export function redactText(text: string): string {
  let clean = text.length > MAX_SCANNED_CHARACTERS ? text.slice(0, MAX_SCANNED_CHARACTERS) : text;
  for (const [pattern, replacement] of PATTERNS) clean = clean.replace(pattern, replacement);
  if (clean.length <= MAX_TEXT_CHARACTERS && text.length <= MAX_SCANNED_CHARACTERS) return clean;
  return `${clean.slice(0, MAX_TEXT_CHARACTERS)}… (${text.length} characters)`;
}

/** Returns a log line of JSON without secrets, as one line of JSON. */
export function redactLine(line: string): string {
  let clean = line;
  if (line.length > MAX_LINE_CHARACTERS || SUSPECT.test(line)) {
    try {
      clean = `${JSON.stringify(redactValue(JSON.parse(line), 0))}\n`;
    } catch {
      clean = `${JSON.stringify({ level: "error", msg: "a log line was not JSON" })}\n`;
    }
  }
  return clean.replace(LINE_SEPARATORS, escapeCharacter);
}

function escapeCharacter(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
}

function redactValue(value: unknown, depth: number): unknown {
  if (typeof value === "string") return redactText(value);
  if (typeof value !== "object" || value === null) return value;
  if (depth >= MAX_DEPTH) return "…";
  if (Array.isArray(value)) return value.map((item) => redactValue(item, depth + 1));
  const clean: Record<string, unknown> = {};
  for (const [name, member] of Object.entries(value)) {
    const isSecret = SECRET_NAMES.test(name) && typeof member === "string";
    clean[redactText(name)] = isSecret ? HIDDEN : redactValue(member, depth + 1);
  }
  return clean;
}

/** The logged members of an error. No others are read, because they could hold prompts or secrets. */
interface ErrorFields {
  readonly type: string;
  readonly message: string;
  readonly code?: string | number;
  readonly param?: string;
  /** Kind and HTTP status of an expected failure. */
  readonly kind?: string;
  readonly status?: number;
  readonly stack?: string;
  readonly cause?: ErrorFields;
  readonly errors?: readonly ErrorFields[];
}

const MAX_CAUSES = 5;
const MAX_AGGREGATED = 5;
const MAX_FRAMES = 12;
const FRAME = /^\s+at /;

/** Describes any thrown value and its chain of causes, without secrets. Never throws. */
export function errorFields(thrown: unknown): ErrorFields {
  return describe(thrown, 0);
}

function describe(thrown: unknown, depth: number): ErrorFields {
  try {
    return thrown instanceof Error ? describeError(thrown, depth) : describeValue(thrown);
  } catch {
    return { type: "unreadable", message: "the error could not be read" };
  }
}

function describeValue(value: unknown): ErrorFields {
  const isPrimitive = typeof value !== "object" && typeof value !== "function";
  return {
    type: value === null ? "null" : typeof value,
    message: isPrimitive ? redactText(String(value)) : "not an error object",
  };
}

/**
 * Describes an error. An error whose message can quote a prompt has a `logMessage` to log instead. An
 * error with `isExpected` is a failure of another program, such as a provider: it is logged without
 * its stack, which would show only code of the gateway.
 */
function describeError(error: Error, depth: number): ErrorFields {
  const { code, param, kind, status, logMessage, isExpected } = error as Error &
    Readonly<Record<string, unknown>>;
  const errors = error instanceof AggregateError ? error.errors.slice(0, MAX_AGGREGATED) : [];
  return {
    type: redactText(String(error.name)),
    message: redactText(String(logMessage ?? error.message)),
    ...(typeof code === "number" && { code }),
    ...(typeof code === "string" && { code: redactText(code) }),
    ...(typeof param === "string" && logMessage === undefined && { param: redactText(param) }),
    ...(isExpected === true
      ? {
          ...(typeof kind === "string" && { kind }),
          ...(typeof status === "number" && { status }),
        }
      : { stack: stackFrames(error.stack) }),
    ...(error.cause !== undefined &&
      depth < MAX_CAUSES && { cause: describe(error.cause, depth + 1) }),
    ...(errors.length > 0 &&
      depth < MAX_CAUSES && { errors: errors.map((inner: unknown) => describe(inner, depth + 1)) }),
  };
}

/**
 * Returns the frames of a stack, without the message at its start, which is logged as `message`.
 */
function stackFrames(stack: unknown): string | undefined {
  if (typeof stack !== "string") return undefined;
  const frames = stack.split("\n").filter((line) => FRAME.test(line));
  if (frames.length === 0) return undefined;
  return redactText(
    frames
      .slice(0, MAX_FRAMES)
      .map((line) => line.trim())
      .join("\n"),
  );
}

const PLAIN_NAME = /^[\w./:@+-]{1,200}$/;
const UNPRINTABLE = /[^\x20-\x7e]/g;
const MAX_NAME_CHARACTERS = 200;

/**
 * Returns the name of a model for the log. Without a provider the model is the caller's text, which
 * can be anything, even a misplaced key.
 */
export function shownModel(model: string, provider: string | undefined): string {
  if (provider !== undefined && PLAIN_NAME.test(model)) return model;
  return redactText(model).replace(UNPRINTABLE, "?").slice(0, MAX_NAME_CHARACTERS);
}
