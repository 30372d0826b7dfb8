import { isFields } from "../../lib/json.ts";
import { printable } from "../../lib/printable.ts";

/*
 * Lines of the log for people. pino-pretty would bring 19 packages, takes 0.2 s to load, and shows the fields of a
 * request as JSON.
 */

type Fields = Readonly<Record<string, unknown>>;

const LEVEL_WIDTH = 5;
/** ANSI colors. Levels that are missing here have none. */
const LEVEL_COLORS: Readonly<Record<string, number>> = {
  warn: 33,
  error: 31,
  fatal: 31,
  debug: 90,
  trace: 90,
};
const DIM = 2;
/** Fields of a request that its line shows without their names, or not at all. */
const REQUEST_FIELDS = new Set([
  ...["method", "route", "status", "model", "latency_ms", "prompt_tokens", "completion_tokens"],
  ...["cost_usd", "error_code", "organization_id", "key_id", "provider", "first_token_ms"],
]);
const MAX_CAUSES = 8;

/** Returns a line of the log, which is JSON, as text with its line feed: time, level, message, other fields. */
export function textLine(line: string, hasColors: boolean): string {
  const { level, time, msg, err, ...fields } = JSON.parse(line) as Fields;
  const paint = (code: number | undefined, text: string) =>
    hasColors && code !== undefined && text !== "" ? `\x1b[${code}m${text}\x1b[0m` : text;
  const isRequest = msg === "request" && typeof fields.route === "string";
  const label = String(level).toUpperCase().padEnd(LEVEL_WIDTH);
  const text = isRequest ? requestText(fields) : messageText(msg, err);
  const shown = new Set(text.split(/[\s:/,]+/));
  const others = Object.entries(fields)
    .filter(([name, value]) => !(isRequest ? REQUEST_FIELDS.has(name) : shown.has(String(value))))
    .map(([name, value]) => `${printable(name)}=${valueText(value)}`);
  const words = [
    paint(DIM, timeText(time)),
    paint(LEVEL_COLORS[String(level)], label),
    text,
    paint(DIM, others.join(" ")),
  ];
  const frames = stackLines(err).map((frame) => `\n    ${paint(DIM, frame)}`);
  return `${words.filter((word) => word !== "").join(" ")}${frames.join("")}\n`;
}

/** Returns the time of day in the time zone of this machine. */
function timeText(time: unknown): string {
  return new Date(String(time)).toTimeString().slice(0, 8);
}

function requestText(fields: Fields): string {
  const { prompt_tokens: prompt, completion_tokens: completion, cost_usd: cost } = fields;
  const parts = [
    `${fields.method} ${fields.route} ${fields.status} ${Math.round(Number(fields.latency_ms))} ms`,
    fields.model,
    prompt === undefined ? undefined : `${prompt}+${completion ?? 0} tokens`,
    cost === undefined ? undefined : `${cost} USD`,
    fields.error_code,
  ];
  return parts
    .filter((part) => part !== undefined)
    .map((part) => printable(String(part)))
    .join("  ");
}

/** Returns the message, then the messages of the error and its causes that it does not have yet. */
function messageText(message: unknown, error: unknown): string {
  const texts = [String(message ?? "")];
  for (const { message: reason } of causes(error)) {
    if (!texts.some((text) => text.includes(String(reason)))) texts.push(String(reason));
  }
  return texts.map((text) => printable(text.replaceAll(/\s*\n\s*/g, " "))).join(": ");
}

function stackLines(error: unknown): string[] {
  return causes(error).flatMap(({ stack }) =>
    typeof stack === "string" ? stack.split("\n").map(printable) : [],
  );
}

/** Returns the error and its causes, outermost first. */
function causes(error: unknown): Fields[] {
  const found: Fields[] = [];
  for (let one = error; isFields(one) && found.length < MAX_CAUSES; one = one.cause)
    found.push(one);
  return found;
}

/** Returns a text as it is, or in quotes if it has spaces, and any other value as JSON. */
function valueText(value: unknown): string {
  const isPlain = typeof value === "string" && /^[^\s"]+$/.test(value);
  return printable(isPlain ? value : JSON.stringify(value));
}
